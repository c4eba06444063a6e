"""Record launches of two copies of one program on this CPU, for ``benchmarks.decisions`` to play with.

    python -m benchmarks.record_launches [--launches N] [--out FILE] [--json FILE]

Made by the product's own timing code (``ratchet/measure``): each launch is a process of its own, which draws by lot
which copy is compiled and timed first, and times both round by round. The file holds the wall nanoseconds of every
call of ``examples/cpu_attention/kernel.py``, how long each launch took, and what machine it was.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.command import command
from benchmarks.lib.launches import timed
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show
from ratchet.exam.judge.correctness import Examiner
from ratchet.exam.judge.workers import Workers
from ratchet.exam.measure import devices
from ratchet.exam.measure.session import LAUNCH_SECONDS
from ratchet.tpu.chips import V5E
from ratchet.values.samples import Launch

KERNEL = ROOT / "examples" / "cpu_attention" / "kernel.py"
OUT = ROOT / "benchmarks" / "data" / "cpu_launches.npz"
ROUNDS = 200
"""At most so many rounds of a launch are stored; where there were fewer, the rest is 0."""


def record(count: int, out: Path) -> list[Launch]:
    """Run ``count`` launches and write what they timed to ``out``, after every tenth."""
    launches: list[Launch] = []
    source = KERNEL.read_text()
    with tempfile.TemporaryDirectory() as folder, Workers(V5E, compiles=False) as workers:
        exam = Examiner(workers=workers, root=Path(folder), compiler=devices.compiler("cpu"))
        with timed(source, source, workers, exam) as session:
            for number in range(count):
                launches.append(session.launch()[0])
                if number % 10 == 9 or number == count - 1:
                    save(launches, out)
                    print(f"{number + 1} launches", file=sys.stderr, flush=True)
    return launches


def save(launches: Sequence[Launch], out: Path) -> None:
    rounds = min(ROUNDS, max(len(one.candidate_ms) for one in launches))
    nanoseconds = np.zeros((len(launches), 2, rounds))
    for number, one in enumerate(launches):
        for which, times in enumerate((one.candidate_ms, one.incumbent_ms)):
            nanoseconds[number, which, : len(times[:rounds])] = times[:rounds]
    made = {
        "how": "python -m benchmarks.record_launches",
        "program": "examples/cpu_attention/kernel.py, two copies of it",
        "machine": devices.cpu(),
        "compiler": devices.compiler("cpu"),
        "seconds of timed calls asked for": LAUNCH_SECONDS,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "conditions": "other work was running on the same cores throughout",
    }
    np.savez_compressed(
        out,
        wall_ns=np.round(nanoseconds * 1e6).astype(np.uint32),
        candidate_first=np.array([one.candidate_first for one in launches]),
        seconds=np.array([one.seconds for one in launches], np.float32),
        made=np.array(json.dumps(made)),
    )


def row(number: int, launch: Launch) -> dict[str, Any]:
    """One line of the table: medians of a launch's calls."""
    return {
        "launch": number,
        "first": "candidate" if launch.candidate_first else "incumbent",
        "calls of each": len(launch.candidate_ms),
        "candidate ms": statistics.median(launch.candidate_ms),
        "incumbent ms": statistics.median(launch.incumbent_ms),
        "seconds": launch.seconds,
    }


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--launches", type=int, default=160)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rows = [row(number, launch) for number, launch in enumerate(record(options.launches, options.out), start=1)]
    show(f"launches of two copies, measured on {devices.cpu()}: {options.out}", rows, json_file=options.json)


if __name__ == "__main__":
    main()
