"""Seconds of whole verdicts by the real commands, beside the bare compile, and points a minute of a sweep.

    python -m benchmarks.verdict [--only NAME,NAME] [--rounds 3] [--no-growth] [--examples] [--json FILE]

A throwaway clone of HEAD judges each kernel by ``prepare.py``: the first verdict of all starts what waits for the
later ones (``ratchet/process/sandbox/standby.py``; ``RATCHET_STANDBY_MINUTES=0`` leaves that out). ``first`` also
computes the problem's references in float64; ``second`` is what a fresh verdict costs from then on (the median of up to
``--rounds``; after half a minute of them no further one begins), and its steps are the second table. Steps that ran
beside others add up to more than the whole. ``bare`` compiles the same program before and after each of those, without
dumps, tokens and annotations, and with the system's allocator; ratios are medians of a verdict over the mean of both,
for the host has slow minutes. ``remembered`` is the same program once more. ``loser`` is a whole experiment that cannot
be kept. CPU seconds are those of all processes, by part in the third table, with the most memory that they held at a
time. The sweep models every point by ``./ratchet.sh sweep``; ``one by one`` is the mean of ``prepare.py`` on its first
points. The growth table has a small kernel grow tenfold, one constant at a time; an exponent of 1 is cost in
proportion. ``--examples`` adds the first verdict of every file in ``examples/``, with their median. ``--only ""``
leaves out the kernels. Each verdict is said on standard error as it ends. Wall seconds need both cores quiet, CPU
seconds hardly.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command, say
from benchmarks.lib.sources import ROOT, edited
from benchmarks.lib.table import show_all
from benchmarks.lib.usage import Usage, usage
from tools.commands import clone as clone_of_head

KERNELS = {
    "naive": "examples/naive_attention.py",
    "kernel.py": "kernel.py",
    "decode_kernel.py": "decode_kernel.py",
    "paged_decode": "examples/paged_decode.py",
    "flash_forward": "pallas_flash/kernels/flash_forward.py",
    "flash_backward": "pallas_flash/kernels/flash_backward.py",
}
LOSERS = {"naive": {"BQ": 64}}
SWEEPS = {
    "naive": ("BQ=128,256,512,1024", "BKV=128,256,512,1024"),
    "flash_forward": ("BLOCK_Q=1024,2048,4096", "BLOCK_KV=256,512", "UNROLL=1,2"),
}
ARGUMENTS = {"flash_forward": ("block_q", "block_kv", "unroll")}
"""Of kernels whose blocks are arguments, those that become constants of the clone's file, for a sweep to change."""
GROWING = Path(__file__).with_name("growing.py")
GROWTH: dict[str, dict[str, int]] = {
    "nothing": {},
    "grid steps": {"STEPS": 200},
    "operations of a step": {"BODY": 80},
    "bytes of operands": {"ROWS": 32000},
}
"""Constants of ``GROWING``. Larger operands are larger blocks, in as many steps."""
ALONE = 2
"""Points of a sweep that are judged one by one, too."""
ENOUGH_S = 30.0
"""Wall seconds of the fresh verdicts on one kernel, after which no further one begins."""


@dataclass(frozen=True, kw_only=True)
class Clone:
    """A clone of HEAD with this environment."""

    root: Path

    def run(self, *arguments: str) -> Usage:
        """What a command in it uses, and prints."""
        return usage(arguments, cwd=self.root)

    def verdict(self, kernel: str, *options: str) -> tuple[Usage, dict[str, Any]]:
        """``prepare.py`` on it: what it uses, and the JSON document."""
        used = self.run(".venv/bin/python", "prepare.py", "--kernel", kernel, "--json", *options)
        document = json.loads(used.printed)
        status = document["outcome"]["status"]
        say(f"{kernel} {' '.join(options)}: {status}, {used.wall_s:.1f} s, {used.total_cpu_s:.1f} CPU s")
        return used, document


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--only", default=",".join(KERNELS), help=f"some of {', '.join(KERNELS)}")
    parser.add_argument("--examples", action="store_true", help="first verdicts of all example operators, too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-growth", action="store_true", help="leave out how cost grows")
    options = parser.parse_args()
    rows, steps, parts, sweeps = [], {}, [], []
    with tempfile.TemporaryDirectory() as folder:
        clone = Clone(root=clone_of_head(Path(folder)))
        for name in filter(None, options.only.split(",")):
            row, seconds, part = judged(clone, name, options.rounds)
            rows.append(row)
            parts.append(part)
            for step, took in seconds.items():
                steps.setdefault(step, {"step": step})[name] = took
            if name in SWEEPS:
                sweeps.append(swept(clone, name))
        growth = [] if options.no_growth else grown(clone)
        firsts = first_of_examples(clone) if options.examples else []
    tables = {
        "seconds of a verdict": rows,
        "seconds of its steps": list(steps.values()),
        "CPU seconds of a second verdict by part": parts,
        "sweeps": sweeps,
        "CPU seconds of a second verdict as a kernel grows tenfold": growth,
        "first verdicts of the example operators": firsts,
    }
    show_all(tables, json_file=options.json)


def judged(clone: Clone, name: str, rounds: int) -> tuple[dict[str, Any], dict[str, float], dict[str, Any]]:
    """First and later verdicts of one kernel; the seconds of each step; CPU seconds by part, and the most memory."""
    kernel = KERNELS[name]
    first, document = clone.verdict(kernel)
    program = clone.root / "hlo_dumps" / document["outcome"]["id"] / "kernel.bin"
    later: list[Usage] = []
    around = [compiled(program)]
    while len(later) < rounds and sum(one.wall_s for one in later) < ENOUGH_S:
        used, document = clone.verdict(kernel, "--fresh")
        later.append(used)
        around.append(compiled(program))
    again, _ = clone.verdict(kernel)
    bare = [[statistics.mean(each) for each in zip(*two, strict=True)] for two in itertools.pairwise(around)]
    pairs = list(zip(later, bare, strict=True))
    row = {
        "kernel": name,
        "status": document["outcome"]["status"],
        "first": first.wall_s,
        "second": statistics.median(one.wall_s for one in later),
        "remembered": again.wall_s,
        "bare compile": statistics.median(wall for wall, _ in bare),
        "second / bare": statistics.median(one.wall_s / wall for one, (wall, _) in pairs),
        "second, CPU": statistics.median(one.total_cpu_s for one in later),
        "bare, CPU": statistics.median(cpu for _, cpu in bare),
        "CPU / bare": statistics.median(one.total_cpu_s / cpu for one, (_, cpu) in pairs),
        "loser": loser(clone, name) if name in LOSERS else None,
    }
    peaks = {"peak GB": used.peak_bytes / 1e9, "of the first": first.peak_bytes / 1e9}
    part = {"kernel": name, **used.cpu_s, "all": used.total_cpu_s, **peaks}
    return row, {step["name"]: step["seconds"] for step in document["verdict"]["steps"]}, part


def compiled(program: Path) -> tuple[float, float]:
    """Wall and CPU seconds of the bare compile."""
    command = [sys.executable, "-m", "benchmarks.verdict.bare", program]
    wall, cpu = json.loads(subprocess.check_output(command, cwd=ROOT))
    return wall, cpu


def loser(clone: Clone, name: str) -> float:
    """An experiment that is modelled as no better; the baseline before it does not count."""
    kernel = clone.root / KERNELS[name]
    clone.run("./ratchet.sh", "--kernel", KERNELS[name], "baseline")
    kernel.write_text(edited(kernel.read_text(), **LOSERS[name]))
    used = clone.run("./ratchet.sh", "--kernel", KERNELS[name], "experiment: a loser")
    assert "status=UNCHECKED" in used.printed, used.printed
    return used.wall_s


def named(source: str, arguments: Sequence[str]) -> str:
    """A kernel file in which these arguments of the call on its line ``BLOCKS = …`` are constants, in capitals."""
    (line,) = re.findall(r"(?m)^BLOCKS = .*", source) or [""]
    new, constants = line, []
    for argument in arguments:
        new, count = re.subn(rf"\b{argument}=(\w+)", rf"{argument}={argument.upper()}", new)
        if count != 1:
            raise ValueError(f"{count} arguments {argument} in {line!r}; wanted one")
        constants += re.findall(rf"\b{argument}=(\w+)", line)
    lines = [f"{argument.upper()} = {value}\n" for argument, value in zip(arguments, constants, strict=True)]
    return source.replace(line, "".join(lines) + new) if lines else source


def swept(clone: Clone, name: str) -> dict[str, Any]:
    """A sweep, and its first points one by one."""
    kernel = clone.root / KERNELS[name]
    before, alone = named(kernel.read_text(), ARGUMENTS.get(name, ())), []
    kernel.write_text(before)
    used = clone.run("./ratchet.sh", "sweep", KERNELS[name], *SWEEPS[name], "--fresh", "--json")
    points = json.loads(used.printed)["points"]
    for point in points[:ALONE]:
        kernel.write_text(edited(before, **point["point"]))
        alone.append(clone.verdict(KERNELS[name], "--fresh")[0].wall_s)
    kernel.write_text(before)
    return {
        "sweep": name,
        "points": len(points),
        "modelled": sum(point["latency_ms"] is not None for point in points),
        "seconds": used.wall_s,
        "points a minute": 60 * len(points) / used.wall_s,
        "one by one, a minute": 60 / statistics.mean(alone),
    }


def first_of_examples(clone: Clone) -> list[dict[str, Any]]:
    """The first verdict of each modelled file of ``examples/``, as in a fresh clone; their median and the slowest."""
    rows: list[dict[str, Any]] = []
    for path in sorted((clone.root / "examples").glob("*.py")):
        for references in (clone.root / ".ratchet").glob("references/*"):
            shutil.rmtree(references)  # another kernel of the same problem may have been judged before
        used, document = clone.verdict(f"examples/{path.name}", "--fresh")
        status = document["outcome"]["status"]
        row = {"example": path.stem, "status": status, "first": used.wall_s, "CPU": used.total_cpu_s}
        rows.append(row | {"peak GB": used.peak_bytes / 1e9})
    ranked = sorted(rows, key=lambda row: row["first"])
    median = statistics.median(row["first"] for row in rows)
    return [*ranked, {"example": "median", "first": median}]


def grown(clone: Clone) -> list[dict[str, Any]]:
    """A second verdict of a small kernel, and of ones ten times as large in one thing each."""
    source, rows = GROWING.read_text(), []
    smallest = 0.0
    for what, constants in GROWTH.items():
        kernel = f"growing_{len(rows)}.py"
        (clone.root / kernel).write_text(edited(source, **constants))
        clone.verdict(kernel)
        used, document = clone.verdict(kernel, "--fresh")
        smallest = smallest or used.total_cpu_s
        rows.append(
            {
                "ten times": what,
                "status": document["outcome"]["status"],
                "CPU seconds": used.total_cpu_s,
                "exponent": math.log10(used.total_cpu_s / smallest) if rows else None,
                **{part: seconds for part, seconds in used.cpu_s.items() if part != "judge"},
                "peak GB": used.peak_bytes / 1e9,
            }
        )
    return rows


if __name__ == "__main__":
    main()
