"""What the jail and the loader add to a verdict, in seconds.

    python -m benchmarks.jail [--rounds 20] [--json FILE]

A child that imports nothing is started, asked once and ended: behind all walls, behind none, and as a plain Python
that imports from files. The judge is started by ``ratchet/process/boot/start.py`` and as a plain ``python -m ratchet``.
The code of installed packages is digested. Ways take turns. Wall-clock and processor seconds are medians; a verdict
starts four children, starts once and asks for the seal twice. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ratchet.process.boot import installed
from ratchet.process.sandbox.child import JAILED, OPEN, PACKAGE_ROOT, Child, Limits, packages

CHILDREN = 4
"""Of a modelled verdict: for the kernel file, the compiler, the values and the schedule machine."""
SEALS = 2
"""How often a turn asks for the seal."""
IDLE = "benchmarks.lib.idle"
LIMITS = Limits(seconds=60, memory_bytes=1 << 30)


def child(folder: Path, *, walls: bool) -> None:
    """A child's whole life."""
    with Child(IDLE, directory=folder / "child", walls=JAILED if walls else OPEN) as started:
        ending = started.ask(folder, LIMITS)
        assert ending.how == "answered", ending.tail


def plain_child(folder: Path) -> None:
    """The same without a launcher."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE_ROOT)}
    command = [sys.executable, "-s", "-P", "-m", IDLE]
    subprocess.run(command, cwd=folder, env=environment, input=b"x\n", capture_output=True, check=True)


def command(*arguments: str) -> Callable[[Path], None]:
    """A Python that says what the command line is."""

    def run(_: Path) -> None:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE_ROOT)}
        subprocess.run([sys.executable, *arguments], env=environment, cwd="/", capture_output=True, check=True)

    return run


WAYS: dict[str, Callable[[Path], None]] = {
    "child, all walls": lambda folder: child(folder, walls=True),
    "child, no walls": lambda folder: child(folder, walls=False),
    "child, plain Python": plain_child,
    "start, served": command("-I", "-S", str(PACKAGE_ROOT / "ratchet" / "start.py"), "ratchet", "--help"),
    "start, plain Python": command("-P", "-m", "ratchet", "--help"),
    "digest of packages": lambda _: sum(bool(installed.digest(Path(folder))) for folder in {*packages()}) and None,
}


def used() -> float:
    """Processor seconds of this process and of all that ended below it."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def measured(rounds: int) -> dict[str, dict[str, float]]:
    """Medians by way."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as name:
        for number in range(rounds + 1):
            for way, run in WAYS.items():
                folder = Path(name, f"{number}-{len(samples[way])}-{way.replace(' ', '-').replace(',', '')}")
                folder.mkdir()
                wall, processor = time.monotonic(), used()
                run(folder)
                if number:  # the first round fills caches
                    samples[way].append((time.monotonic() - wall, used() - processor))
    return {
        way: {
            "wall_s": statistics.median(wall for wall, _ in seen),
            "processor_s": statistics.median(processor for _, processor in seen),
        }
        for way, seen in samples.items()
    }


def added(ways: dict[str, dict[str, float]], clock: str) -> float:
    """Seconds that a verdict takes longer."""
    walls = ways["child, all walls"][clock] - ways["child, plain Python"][clock]
    start = ways["start, served"][clock] - ways["start, plain Python"][clock]
    return CHILDREN * walls + start + SEALS * ways["digest of packages"][clock]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    ways = measured(options.rounds)
    total = {clock: added(ways, clock) for clock in ("wall_s", "processor_s")}
    for way, row in {**ways, "added to a verdict": total}.items():
        print(f"{way:<22} {row['wall_s']:8.3f} s {row['processor_s']:8.3f} s of a processor")
    if options.json:
        options.json.write_text(json.dumps({"rounds": options.rounds, "ways": ways, "added": total}, indent=1) + "\n")


if __name__ == "__main__":
    main()
