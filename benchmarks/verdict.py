"""Seconds of whole verdicts by the real commands, beside the bare compile, and points a minute of a sweep.

    python -m benchmarks.verdict [--only NAME,NAME] [--rounds 3] [--json FILE]

A throwaway clone of HEAD judges each kernel by ``prepare.py``: ``first`` also computes the problem's references in
float64; ``second`` is what a verdict costs from then on (the median of the rounds), and its steps are the second table.
Steps that ran beside others add up to more than the whole. ``bare`` compiles the same program without dumps, tokens
and annotations, in the same run. ``loser`` is a whole experiment that cannot be kept. The sweep models every point by
``./ratchet.sh sweep``; ``one by one`` is the mean of ``prepare.py`` on its first points. Needs both cores quiet.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command
from benchmarks.lib.sources import ROOT, edited
from benchmarks.lib.table import show_all

KERNELS = {
    "naive": "examples/naive_attention.py",
    "kernel.py": "kernel.py",
    "decode_kernel.py": "decode_kernel.py",
    "paged_decode": "examples/paged_decode.py",
    "flash_forward": "pallas_flash/kernels/flash_forward.py",
    "flash_backward": "pallas_flash/kernels/flash_backward.py",
}
LOSERS = {"naive": {"BQ": 64}}
SWEEPS = {"naive": ("BQ=128,256,512,1024", "BKV=128,256,512,1024")}
"""Of kernels whose blocks are constants of their own: those of ``pallas_flash`` are arguments of one."""
ALONE = 2
"""Points of a sweep that are judged one by one, too."""


@dataclass(frozen=True, kw_only=True)
class Clone:
    """A clone of HEAD with this environment."""

    root: Path

    @classmethod
    def new(cls, folder: Path) -> Clone:
        root = folder / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(root)], check=True)
        (root / ".venv").symlink_to((ROOT / ".venv").resolve())
        with (root / ".git" / "info" / "exclude").open("a") as exclude:
            exclude.write(".venv\n")
        return cls(root=root)

    def run(self, *arguments: str) -> tuple[float, str]:
        """Wall seconds of a command in it, and what it printed."""
        identity = {"GIT_AUTHOR_NAME": "benchmark", "GIT_AUTHOR_EMAIL": "benchmark@example.invalid"}
        identity |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in identity.items()}
        start = time.monotonic()
        environment = os.environ | identity
        done = subprocess.run(arguments, cwd=self.root, env=environment, capture_output=True, text=True, check=False)
        return time.monotonic() - start, done.stdout

    def verdict(self, kernel: str) -> tuple[float, dict[str, Any]]:
        """``prepare.py`` on it: seconds, and the JSON document."""
        seconds, printed = self.run(".venv/bin/python", "prepare.py", "--kernel", kernel, "--json")
        return seconds, json.loads(printed)


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--only", default=",".join(KERNELS), help=f"some of {', '.join(KERNELS)}")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone = Clone.new(Path(folder))
        rows, columns, sweeps = [], {}, []
        for name in options.only.split(","):
            row, columns[name] = judged(clone, name, options.rounds)
            rows.append(row)
            if name in SWEEPS:
                sweeps.append(swept(clone, name))
    names = dict.fromkeys(step for seconds in columns.values() for step in seconds)
    steps = [{"step": step, **{name: seconds.get(step) for name, seconds in columns.items()}} for step in names]
    tables = {"seconds of a verdict": rows, "seconds of its steps": steps, "sweeps": sweeps}
    show_all(tables, json_file=options.json)


def judged(clone: Clone, name: str, rounds: int) -> tuple[dict[str, Any], dict[str, float]]:
    """First and later verdicts of one kernel, and the seconds of each step of the last."""
    kernel = KERNELS[name]
    first, document = clone.verdict(kernel)
    later = []
    for _ in range(rounds):
        seconds, document = clone.verdict(kernel)
        later.append(seconds)
    program = clone.root / "hlo_dumps" / document["outcome"]["id"] / "kernel.bin"
    bare = float(subprocess.check_output([sys.executable, "-m", "benchmarks.lib.bare", str(program)], cwd=ROOT))
    second = statistics.median(later)
    row = {
        "kernel": name,
        "status": document["outcome"]["status"],
        "first": first,
        "second": second,
        "bare compile": bare,
        "second / bare": second / bare,
        "loser": loser(clone, name) if name in LOSERS else None,
    }
    return row, {step["name"]: step["seconds"] for step in document["verdict"]["steps"]}


def loser(clone: Clone, name: str) -> float:
    """An experiment that is modelled as no better; the baseline before it does not count."""
    kernel = clone.root / KERNELS[name]
    clone.run("./ratchet.sh", "--kernel", KERNELS[name], "baseline")
    kernel.write_text(edited(kernel.read_text(), **LOSERS[name]))
    seconds, printed = clone.run("./ratchet.sh", "--kernel", KERNELS[name], "experiment: a loser")
    assert "status=UNCHECKED" in printed, printed
    return seconds


def swept(clone: Clone, name: str) -> dict[str, Any]:
    """A sweep, and its first points one by one."""
    kernel = clone.root / KERNELS[name]
    seconds, printed = clone.run("./ratchet.sh", "sweep", KERNELS[name], *SWEEPS[name], "--json")
    points = json.loads(printed)["points"]
    before, alone = kernel.read_text(), []
    for point in points[:ALONE]:
        kernel.write_text(edited(before, **point["point"]))
        alone.append(clone.verdict(KERNELS[name])[0])
    kernel.write_text(before)
    return {
        "sweep": name,
        "points": len(points),
        "modelled": sum(point["latency_ms"] is not None for point in points),
        "seconds": seconds,
        "points a minute": 60 * len(points) / seconds,
        "one by one, a minute": 60 / statistics.mean(alone),
    }


if __name__ == "__main__":
    main()
