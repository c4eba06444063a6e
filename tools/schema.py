"""Writes the words that the code decides into ``verdict.schema.json``: ``python -m tools.schema``."""

from __future__ import annotations

import json
import sys
from enum import Enum
from typing import Any, get_args

from ratchet.exam.measure import stats
from ratchet.tpu.account import band, regions
from ratchet.values import MEASURED, SCHEMA_VERSION, Decision
from ratchet.values.loss import LossKind, WaitCause
from ratchet.values.omission import Omission, Unmodelled
from ratchet.values.status import Status
from ratchet.values.verdict import SCORED
from ratchet.view.verdict_json import SCHEMA_PATH


def _values(of: type[Enum]) -> list[str]:
    return [one.value for one in of]


_WORDS: dict[str, list[Any]] = {
    "outcome/decision": [Decision.KEPT, Decision.REVERTED, Decision.BASELINE, Decision.JUDGED, None],
    "verdict/score/band/bound_by": [*band.REGIMES],
    "verdict/timeline/not_modelled/kind": [
        *_values(Unmodelled),
        *(omission.kind for omission in get_args(Omission) if omission is not Unmodelled),
    ],
    "verdict/timeline/blame/regions/name": [*regions.PARTS, "outside"],
    "verdict/timeline/blame/losses/kind": _values(LossKind),
    "verdict/timeline/blame/losses/cause": _values(WaitCause),
    "verdict/samples/evaluator": [*MEASURED],
    "verdict/paired/answer": [stats.FASTER, stats.NOT_FASTER, stats.CANNOT_TELL],
}


def made() -> str:
    """The schema as it has to be: the file's own descriptions, with the words of the code."""
    schema = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    schema["properties"]["schema_version"]["const"] = SCHEMA_VERSION
    schema["$defs"]["status"]["enum"] = [status.name for status in Status]
    schema["properties"]["verdict"]["if"]["properties"]["status"]["enum"] = [status.name for status in SCORED]
    for path, words in _WORDS.items():
        node = schema
        for name in path.split("/"):
            node = node.get("items", node)["properties"][name]
        node["enum"] = words
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    SCHEMA_PATH.write_text(made(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
