"""The jailed child that holds the schedule machine: it reads what the compiler wrote, and runs code made of it.

It answers with a timeline as plain data; the judge checks its types and believes no more of it than of a compiler.
"""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ratchet.exam.judge.schedule import ARRAYS, REQUEST, TIMELINE, steered
from ratchet.process.sandbox.child import serve
from ratchet.tpu import latency
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.latency import Reading
from ratchet.values import Mesh, Program
from ratchet.values.encoding import decode, encode
from ratchet.values.status import Refusal

_LAST: dict[str, Reading] = {}
"""What is read of the program that was asked about last: a verdict asks again for other inputs that steer it."""
MOST_OBJECTS = 1 << 22
"""That may be made and not be freed before what is garbage is collected: ten times those of a large listing."""


def _reading(program: Program, chip: str) -> Reading:
    written = (program.dump_dir / "schedule").stat().st_mtime_ns
    key = f"{chip} {written} {program}"
    if key not in _LAST:
        _LAST.clear()
        _LAST[key] = Reading()
    return _LAST[key]


def answer(request: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the machine says of the request's program."""
    if gc.get_count()[0] > MOST_OBJECTS:
        gc.collect()
    with np.load(request / ARRAYS) as stored:
        steering, computed = steered({name: stored[name] for name in stored.files})
    try:
        program = decode(Program, asked["program"])
        timeline, summary = latency.step(
            program,
            CHIPS[asked["chip"]],
            decode(Mesh, asked["mesh"]),
            steering,
            computed=computed,
            detail=asked["detail"],
            reading=_reading(program, asked["chip"]),
        )
    except Refusal as refusal:
        return {"refused": [refusal.status.name, refusal.message]}
    except Exception as error:
        return {"internal": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    return {"timeline": encode(timeline), "summary": summary}


def handle(request: Path) -> str:
    """Answer one request."""
    asked = json.loads((request / REQUEST).read_text())
    (request / TIMELINE).write_text(json.dumps(answer(request, asked)))
    return TIMELINE


if __name__ == "__main__":
    gc.disable()
    serve(handle)
