"""With how many secrets each cheat would get through that only its values give away.

    python -m benchmarks.chances [NAME ...] [--secrets N] [--json FILE]

Inputs follow from the judge's secret, and a cheat that looks at them may be lucky. Nothing is compiled for a TPU: each
program is executed as the judge executes it, on every kind of instance until one refuses it, for several secrets. The
kinds are tried in the order that is quickest, not in the judge's; the last column says which of them refused.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command, say
from benchmarks.lib.programs import of_source, with_four_devices
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show
from ratchet.exam.judge.values_worker import Values
from ratchet.exam.problem import instances
from ratchet.exam.problem.inputs import Instance
from ratchet.exam.problem.problem import Problem
from ratchet.selftest import corpus
from ratchet.selftest.defences import DEFENCES
from ratchet.values.status import Refusal, Status

WRONG = {Status.WRONG_VALUES, Status.NOT_FINITE, Status.INSENSITIVE}
BY_VALUES = {one.name for one in DEFENCES if one.statuses and WRONG.issuperset(one.statuses)}
LAST = ("random", "probe")
"""The kinds that are tried last, in this order: on the first a program is executed several times over, and answers to
the others are compared with that to it."""


def asked(corpora: corpus.Corpus, names: list[str]) -> list[corpus.Cheat]:
    """The cheats that no other defence refuses, or those of these names."""
    model = [one for one in corpora.cheats if one.on == corpus.MODEL and one.base in corpora.honest]
    return [one for one in model if (one.name in names if names else BY_VALUES.issuperset(one.caught_by))]


def outcome(values: Values, problem: Problem, program: bytes, secret: bytes, cache: Path) -> str:
    """The kind of instance that refuses a program, and with what; PASS if none does."""
    kinds = instances.kinds_of(problem)
    for kind in sorted(kinds, key=lambda kind: kind.startswith(LAST)):
        instance = Instance(problem=problem, kind=kind, secret=secret, cache=cache)
        if (status := values.check(instance, program=program)["status"]) != Status.PASS.name:
            return f"{kind}: {status}"
    return Status.PASS.name


def chances(cheat: corpus.Cheat, base: str, secrets: int) -> dict[str, Any]:
    """The row of one cheat. It may change the process that traces it: its program is made last, and by itself."""
    frozen = None if cheat.own_problem else of_source(base)[1]
    try:
        artefact, own = of_source(f"{base}\n\n{cheat.text}", freeze=cheat.own_problem)
    except Refusal as refusal:
        return {"cheat": cheat.name, "got through": 0, "secrets": secrets, "refused": refusal.status.name}
    said: Counter[str] = Counter()
    values = Values()
    for number in range(secrets):
        secret = hashlib.sha256(b"chances" + number.to_bytes(4, "little")).digest()
        with tempfile.TemporaryDirectory() as cache:
            said[outcome(values, own or frozen, artefact.program, secret, Path(cache))] += 1
    got_through = said.pop(Status.PASS.name, 0)
    refused = ", ".join(f"{what} ({times})" for what, times in said.most_common())
    return {"cheat": cheat.name, "got through": got_through, "secrets": secrets, "refused": refused}


def main() -> int:
    with_four_devices()
    parser = command(__doc__)
    parser.add_argument("names", nargs="*", help="cheats (default: all that only their values give away)")
    parser.add_argument("--secrets", type=int, default=8, help="how many (default 8)")
    options = parser.parse_args()
    corpora = corpus.read(ROOT)
    rows = []
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        cheats = asked(corpora, options.names)
        bases = [corpora.honest[cheat.base].source for cheat in cheats]
        for row in pool.map(chances, cheats, bases, [options.secrets] * len(cheats)):
            say(f"{row['cheat']}: {row['got through']} of {options.secrets}")
            rows.append(row)
    show("secrets with which a cheat gets through", rows, json_file=options.json)
    return 1 if any(row["got through"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
