"""What faults cost a repository: rows, commits, files of the user's, and whether the next turn finishes.

    python -m benchmarks.faults [--kills 500] [--whole 20] [--seed N] [--folder DIR] [--json FILE]

A turn of the ratchet is traced (ptrace with a seccomp filter, no other program) and ended with SIGKILL at calls that
change a file: every process; the ratchet alone; one git alone; after half of a write; and with a power cut, after which
what was not flushed is gone or cut anywhere. A tenth of the kills is at random times. A fifth as many more are of a
turn whose opener has no ``openat2``. Then come full disks, folders that cannot be written, clocks that go back, locks
of git's that nobody holds, eight writers at once and two worktrees, and ``--whole`` kills of a complete
``./ratchet.sh`` with its judge. After each the turn is run again, and what was lost is counted. Git, ledger and
processes are real; the verdict is prepared, except in the whole turns. Linux on x86-64 only.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

from benchmarks.faults import states, tracer
from benchmarks.faults.scene import SCENES, Tally
from benchmarks.faults.strikes import Striker, plan, strike_all
from benchmarks.lib.command import command, say
from benchmarks.lib.table import show_all
from ratchet.process import root

WAYS = {
    "all": "kill -9 of all processes at a call",
    "power": "power cut at a call",
    "main": "kill -9 of the ratchet alone at a call",
    "one": "kill -9 of the calling process alone",
    "torn": "kill -9 after half of a write",
    "random": "kill -9 of all processes at a random time",
}
LEFT = list(range(0, 40961, 8192))
MEMORY = Path("/dev/shm")


def main() -> int:
    parser = command(__doc__)
    parser.add_argument("--kills", type=int, default=500, help="of turns with a prepared verdict")
    parser.add_argument("--whole", type=int, default=20, help="kills of a complete ./ratchet.sh")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where repositories are made; default: in memory, if there is room")
    options = parser.parse_args()
    if not tracer.available():
        say("processes cannot be traced here: wanted Linux on x86-64, and ptrace permitted")
        return 69
    parent = options.folder or (MEMORY if os.access(MEMORY, os.W_OK) else None)
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=parent))
    try:
        tallies, about = run(folder, kills=options.kills, whole=options.whole, seed=options.seed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [{"fault": name, **tally.counts} for name, tally in tallies.items() if tally.strikes]
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    show_all({"faults": [*rows, {"fault": "together", **total.counts}], "about": [about]}, json_file=options.json)
    return int(total.faults > 0)


def run(folder: Path, *, kills: int, whole: int, seed: int) -> tuple[dict[str, Tally], dict[str, object]]:
    """Tallies by kind of fault, and what was done."""
    (folder / "gitconfig").touch()  # the user's settings of git decide nothing
    os.environ |= {"GIT_CONFIG_GLOBAL": str(folder / "gitconfig"), "GIT_CONFIG_NOSYSTEM": "1"}
    chance, start = random.Random(seed), time.monotonic()
    striker = Striker(folder=folder, chance=chance)
    points, calls = plan(striker, SCENES, kills, chance)
    struck = len({(point.scene.name, point.number) for point in points if point.number})

    tallies = {WAYS[way]: tally for way, tally in strike_all(striker, points).items()}
    tallies["a kill where there is no openat2"] = _without_openat2(folder / "walked", kills // 5, chance)
    tallies["disk full while judging"], disk = states.full_disk(folder, LEFT)
    tallies["a folder or file cannot be written"] = states.read_only(folder)
    tallies["clock back by an hour, a day, three years"] = states.backwards(folder)
    tallies["stale locks of git"] = states.stale_locks(folder)
    tallies["8 writers at once"] = states.at_once(folder, worktrees=1, turns=3, chance=chance)
    tallies["8 writers in two worktrees"] = states.at_once(folder, worktrees=2, turns=3, chance=chance)
    if whole:
        tallies["kill -9 of a whole ./ratchet.sh"] = states.whole_turns(folder, whole, chance)
    about = {"calls that change a file": calls, "struck": struck, "disk": disk, "seed": seed}
    return tallies, {**about, "seconds": round(time.monotonic() - start)}


def _without_openat2(folder: Path, kills: int, chance: random.Random) -> Tally:
    """Kills of all ways, of turns that reach files by a walk from folder to folder."""
    folder.mkdir()
    striker, together = Striker(folder=folder, chance=chance), Tally()
    with mock.patch.object(root, "has_openat2", return_value=False):
        points, _ = plan(striker, SCENES, kills, chance)
        for tally in strike_all(striker, points).values():
            together.add(tally)
    return together


if __name__ == "__main__":
    sys.exit(main())
