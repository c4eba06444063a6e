"""Whole histories on this CPU: the ratchet, swept over the knobs of examples/cpu_attention, several times from scratch.

    python -m benchmarks.overnight [--histories 3] [--experiments 30] [--budget SECONDS] [--json FILE]

Each history is a repository of its own with this tree in it. A sweep proposes one knob at a time on top of what was
kept so far, in an order of its own, and every proposal is one real ``./ratchet.sh "…" --on cpu``: traced in the
jail, checked, timed beside the incumbent, kept or reverted. At the end, the kernels that the histories arrived
at are timed beside the kernel that all began with, and beside the first history's, in new launches.
"""

from __future__ import annotations

import json
import math
import random
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command
from benchmarks.lib.launches import timed
from benchmarks.lib.sources import ROOT, edited
from benchmarks.lib.table import show
from ratchet.exam.measure import devices, stats
from ratchet.exam.measure.session import difference
from tests.workspaces import Workspace

START = ROOT / "examples" / "cpu_attention" / "kernel.py"
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


def proposals(source: str, generator: random.Random) -> list[tuple[str, Any]]:
    """One round of the sweep: every other value of every knob."""
    now = knobs_of(source)
    changes = [(name, value) for name, values in KNOBS.items() for value in values if value != now[name]]
    generator.shuffle(changes)
    return changes


def history(space: Workspace, number: int, experiments: int, budget: float) -> None:
    """Sweep until there are so many experiments besides the baseline."""
    kernel, generator, how = space.root / "kernel.py", random.Random(number), ("--on", "cpu", "--budget", str(budget))
    space.ratchet("baseline", *how)
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
        code = space.ratchet(f"experiment: {name} = {value}", *how).returncode
        done += 1
        last = space.rows()[-1]
        gain = f"{float(last.speedup):.3f} in {last.launches} launches" if last.speedup else ""
        print(
            f"history {number}, {done}: {name} = {value}: {last.status} (exit {code}) {gain}, "
            f"{time.monotonic() - start:.0f} s",
            flush=True,
        )


def beside(one: str, other: str) -> str:
    """Estimate and 95 % interval of the speed-up of the kernel ``one`` over ``other``, in new launches."""
    with timed(one, other) as session:
        differences = [difference(session.launch()[0]) for _ in range(FINAL_LAUNCHES)]
    low, high = (math.exp(bound) for bound in stats.interval(differences))
    return f"{math.exp(stats.centre(differences)):.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--histories", type=int, default=3)
    parser.add_argument("--experiments", type=int, default=30)
    parser.add_argument("--budget", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, start = Path(scratch), START.read_text()
        spaces = [Workspace.new(folder / f"history{n}", start) for n in range(1, options.histories + 1)]
        for number, space in enumerate(spaces, start=1):
            history(space, number, options.experiments, options.budget)
        finals = [space.read() for space in spaces]
        rows = []
        for number, (space, final) in enumerate(zip(spaces, finals, strict=True), start=1):
            known = space.rows()
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
                    "over the start, re-measured": beside(final, start),
                    "over history 1": "" if number == 1 else beside(final, finals[0]),
                }
            )
    show(f"histories on {devices.cpu()}, measured (95 %)", rows, json_file=options.json)


if __name__ == "__main__":
    main()
