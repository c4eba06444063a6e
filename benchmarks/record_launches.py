"""Record launches of two copies of one program on this CPU, for ``benchmarks.decisions`` to play with.

    python -m benchmarks.record_launches [--launches N] [--out FILE]

Made by the product's own timing code (``ratchet/measure``): each launch is a process of its own, which draws by lot
which copy is compiled and timed first, and times both turn by turn. The program: ``examples/cpu_attention/kernel.py``.
The file holds the wall nanoseconds of every call, how long each launch took, and what machine it was.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from prepare import ROOT
from ratchet.candidate import room
from ratchet.chips import V5E
from ratchet.judge.correctness import Examiner
from ratchet.judge.workers import Workers
from ratchet.measure import devices
from ratchet.measure.session import CANDIDATE, INCUMBENT, KINDS, LAUNCH_SECONDS, Device, Session

KERNEL = ROOT / "examples" / "cpu_attention" / "kernel.py"
OUT = ROOT / "benchmarks" / "data" / "cpu_launches.npz"
TURNS = 200
"""At most so many turns of a launch are stored; where there were fewer, the rest is 0."""


def record(count: int, out: Path) -> None:
    """Run ``count`` launches and write what they timed to ``out``, after every tenth."""
    launches = []
    with tempfile.TemporaryDirectory() as folder, Workers(V5E, compiles=False) as workers:
        exam = Examiner(workers=workers, root=Path(folder), compiler=devices.compiler("cpu"))
        artefact, problem = room.examine(
            KERNEL.read_bytes(), KERNEL.name, child=workers.candidate(), freeze=True, platform="cpu"
        )
        assert problem is not None
        exam.prepare(problem, KINDS)
        path = workers.folder("kernel.bin")
        path.write_bytes(artefact.program)
        device = Device(evaluator="cpu", folder=workers.folder)
        session = Session(
            device=device,
            inputs=exam.write_inputs(problem, KINDS),
            specs=problem.inputs,
            verify=lambda name, kind, outputs: exam.check_outputs(problem, kind, outputs, what=name),
            programs={CANDIDATE: path, INCUMBENT: path},
        )
        for number in range(count):
            launches.append(session.launch()[0])
            if number % 10 == 9 or number == count - 1:
                save(launches, out)
                print(f"{number + 1} launches", flush=True)
        device.close()


def save(launches: list, out: Path) -> None:
    turns = min(TURNS, max(len(one.candidate_ms) for one in launches))
    nanoseconds = np.zeros((len(launches), 2, turns))
    for number, one in enumerate(launches):
        for which, times in enumerate((one.candidate_ms, one.incumbent_ms)):
            nanoseconds[number, which, : len(times[:turns])] = times[:turns]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=160)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    record(options.launches, options.out)


if __name__ == "__main__":
    main()
