"""Whole histories on this CPU: the ratchet, swept over the knobs of examples/cpu_attention, several times from scratch.

    python -m benchmarks.overnight [--histories 3] [--experiments 30] [--budget SECONDS] [--json FILE] [--keep FOLDER]

Each history is a repository of its own with this tree in it. A sweep proposes one knob at a time on top of what was
kept so far, in an order of its own, and every proposal is one real ``./ratchet.sh "…" --on cpu``: traced in the
jail, checked, timed beside the incumbent, kept or reverted. At the end, the kernels that the histories arrived
at are timed beside the kernel that all began with, and beside the first history's, in new launches.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command
from benchmarks.lib.launches import timed
from benchmarks.lib.sources import ROOT, edited
from benchmarks.lib.table import show
from ratchet.exam.judge.correctness import Examiner
from ratchet.exam.judge.workers import Workers
from ratchet.exam.measure import devices, stats
from ratchet.exam.measure.session import difference
from ratchet.loop import ledger
from ratchet.tpu.chips import V5E

TREE = ("prepare.py", "ratchet", "ratchet.sh", "environment.sh", "pyproject.toml", "requirements.lock", ".gitignore")
KNOBS: dict[str, tuple[Any, ...]] = {
    "BQ": (16, 32, 64, 128, 256, 512),
    "BKV": (16, 32, 64, 128, 256, 512),
    "SKIP": (False, True),
    "UNROLL": (1, 2, 4, 8),
    "TRANSPOSE": (False, True),
    "SCALE_Q": (False, True),
}
FINAL_LAUNCHES = 20


def knobs_of(source: str) -> dict[str, Any]:
    """The values of the knobs in a kernel file."""
    return {name: json.loads(re.search(rf"^{name} = (.*)$", source, re.M)[1].lower()) for name in KNOBS}  # type: ignore[index]


def repository(root: Path) -> Path:
    """A repository with this tree and the example as its kernel; returns the kernel file."""
    root.mkdir(parents=True)
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, root / name)
    shutil.copy2(ROOT / "examples" / "cpu_attention" / "kernel.py", root / "kernel.py")
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "benchmark"],
        ["config", "user.email", "benchmark@example.invalid"],
        ["add", "."],
        ["commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    return root / "kernel.py"


def turn(root: Path, message: str, budget: float) -> int:
    """One ``./ratchet.sh`` in a repository, with this environment; returns its exit code."""
    command = [sys.executable, "-P", "-m", "ratchet", message, "--on", "cpu", "--budget", str(budget)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, check=False).returncode


def proposals(source: str, generator: random.Random) -> list[tuple[str, Any]]:
    """One round of the sweep: every other value of every knob."""
    now = knobs_of(source)
    changes = [(name, value) for name, values in KNOBS.items() for value in values if value != now[name]]
    generator.shuffle(changes)
    return changes


def history(root: Path, number: int, experiments: int, budget: float) -> None:
    """Sweep until there are so many experiments besides the baseline."""
    kernel, generator = repository(root), random.Random(number)
    turn(root, "baseline", budget)
    waiting: list[tuple[str, Any]] = []
    done = 0
    while done < experiments:
        waiting = waiting or proposals(kernel.read_text(), generator)
        name, value = waiting.pop()
        source = kernel.read_text()
        if knobs_of(source)[name] == value:
            continue
        kernel.write_text(edited(source, **{name: value}))
        start = time.monotonic()
        code = turn(root, f"experiment: {name} = {value}", budget)
        done += 1
        last = ledger.read(root / ledger.NAME)[-1]
        gain = f"{float(last.speedup):.3f} in {last.launches} launches" if last.speedup else ""
        print(
            f"history {number}, {done}: {name} = {value}: {last.status} (exit {code}) {gain}, "
            f"{time.monotonic() - start:.0f} s",
            flush=True,
        )


def beside(one: str, other: str, workers: Workers, exam: Examiner) -> list[float]:
    """Log speed-ups of the kernel ``one`` over ``other``, one per launch."""
    with timed(one, other, workers, exam) as session:
        return [difference(session.launch()[0]) for _ in range(FINAL_LAUNCHES)]


def with_interval(differences: list[float]) -> str:
    """Estimate and 95 % interval of a speed-up."""
    low, high = (math.exp(bound) for bound in stats.interval(differences))
    return f"{math.exp(stats.centre(differences)):.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--histories", type=int, default=3)
    parser.add_argument("--experiments", type=int, default=30)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the repositories there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        roots = [(options.keep or Path(scratch)) / f"history{n}" for n in range(1, options.histories + 1)]
        for number, root in enumerate(roots, start=1):
            history(root, number, options.experiments, options.budget)
        start = (ROOT / "examples" / "cpu_attention" / "kernel.py").read_text()
        finals = [(root / "kernel.py").read_text() for root in roots]
        rows = []
        with Workers(V5E, compiles=False) as workers:
            exam = Examiner(workers=workers, root=Path(scratch), compiler=devices.compiler("cpu"))
            for number, (root, final) in enumerate(zip(roots, finals, strict=True), start=1):
                known = ledger.read(root / ledger.NAME)
                ends = Counter(row.status for row in known if row.decision != "baseline")
                gains = [float(row.speedup) for row in known if row.decision == "kept"]
                rows.append(
                    {
                        "history": number,
                        "experiments": sum(ends.values()),
                        "kept": len(gains),
                        "not faster": ends["NOT_BETTER"],
                        "cannot tell": ends["CANNOT_TELL"],
                        "knobs": " ".join(f"{name}={value}" for name, value in knobs_of(final).items()),
                        "product of kept": math.prod(gains),
                        "over the start, re-measured": with_interval(beside(final, start, workers, exam)),
                        "over history 1": "" if number == 1 else with_interval(beside(final, finals[0], workers, exam)),
                    }
                )
    show(f"histories on {devices.cpu()}, measured (95 %)", rows, json_file=options.json)


if __name__ == "__main__":
    main()
