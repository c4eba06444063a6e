"""States that a turn begins in or meets: full disks, clocks that go back, locks that nobody holds, others at work."""

from __future__ import annotations

import datetime as clock
import os
import random
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.lib.faults.scene import KEPT, SCENES, Complain, Scene, State, Tally, aftermath
from ratchet.loop import ledger, log
from ratchet.loop.judge_only import judge_only
from ratchet.values.row import Origin
from ratchet.values.status import Refusal
from tests.loop.stage import Stage, StageJudge, kernel_text

DISK_BYTES = 3 << 20
LOCKS = ("index.lock", "HEAD.lock", "packed-refs.lock", "refs/heads/main.lock", "refs/ratchet/tips/main.lock")
WRITERS = 8
BACK = (3600, 86400, 3 * 365 * 86400)
"""Seconds."""


def child(function: Callable[[], object]) -> int:
    """Forks, calls, and returns the child's number; a refusal is its exit code."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        function()
        code = 0
    except Refusal as refusal:
        code = refusal.status.exit_code
    finally:
        os._exit(code)


def ended(*pids: int) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


# --- full disks ---


@contextmanager
def small_disk(folder: Path) -> Iterator[str]:
    """Makes ``folder`` a file system of ``DISK_BYTES`` where that is permitted; says what it is."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    mounted = not subprocess.run(mount, check=False, capture_output=True).returncode
    try:
        yield f"tmpfs of {DISK_BYTES >> 20} MiB" if mounted else "limit on the size of files"
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def full_disk(folder: Path, complain: Complain, left: list[int]) -> tuple[Tally, str]:
    """The disk fills up while judging, except ``left`` bytes; then there is room again. Also how it was made."""
    tally, disks = Tally(), set()
    for scene in SCENES[:4]:
        for bytes_left in left:
            with small_disk(folder / "disk") as disk:
                tally.add(_filled(scene, folder / "disk", bytes_left, complain, real=disk.startswith("tmpfs")))
                disks.add(disk)
            shutil.rmtree(folder / "disk", ignore_errors=True)
    return tally, ", ".join(disks)


def _filled(scene: Scene, disk: Path, left: int, complain: Complain, *, real: bool) -> Tally:
    stage, ballast = scene.make(disk / "repository"), disk / "ballast"

    def turn() -> None:
        stage.during = lambda: fill(ballast, left) if real else limit(left)
        scene.turn(stage)

    ended(child(turn))
    ballast.unlink(missing_ok=True)
    return aftermath(scene, stage, State.of(stage), complain, where=f"{scene.name}, a disk with {left} bytes left")


def fill(ballast: Path, left: int) -> None:
    """A file that takes all space except ``left`` bytes."""
    with open(ballast, "ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    os.truncate(ballast, max(0, ballast.stat().st_size - left))


def limit(left: int) -> None:
    """No file of this process, and of those it starts, may be larger."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, resource.RLIM_INFINITY))


# --- clocks ---


@contextmanager
def clock_back(seconds: int) -> Iterator[None]:
    """What the loop and git take for the time is earlier. The machine's own clock is left alone."""

    class Earlier(clock.datetime):
        @classmethod
        def now(cls, tz: clock.tzinfo | None = None) -> Any:
            return clock.datetime.now(tz) - clock.timedelta(seconds=seconds)

    names, then = ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), clock.datetime.now().timestamp() - seconds
    real, ledger.datetime = ledger.datetime, Earlier  # type: ignore[misc]
    os.environ |= {name: f"{int(then)} +0000" for name in names}
    try:
        yield
    finally:
        ledger.datetime = real  # type: ignore[misc]
        for name in names:
            del os.environ[name]


def backwards(folder: Path, complain: Complain) -> Tally:
    """The clock goes back before a turn, or while it judges; files look older than what git remembers of them."""
    tally = Tally()
    for number, (scene, seconds) in enumerate((scene, seconds) for scene in SCENES[:4] for seconds in BACK):
        stage = scene.make(folder / f"clock{number}")
        known = (stage.root / ".git" / "index").stat().st_mtime
        os.utime(stage.root / stage.kernel, (known - seconds, known - seconds))
        before = State.of(stage)
        with clock_back(seconds):
            tally.add(aftermath(scene, stage, before, complain, where=f"{scene.name}, {seconds} s back"))
        ids = [row.id for row in stage.rows()]
        if ids != sorted(set(ids)):
            tally.verify_failures += 1
            complain(f"{scene.name}, {seconds} s back: the ids do not sort: {ids}")
    return tally


# --- locks ---


def stale_locks(folder: Path, complain: Complain) -> Tally:
    """A lock of git's that a killed run left is removed; one that may be somebody's is waited for by the user."""
    tally = Tally()
    for number, (scene, name) in enumerate((scene, name) for scene in SCENES[:2] for name in LOCKS):
        for ours in (True, False):
            stage = scene.make(folder / f"lock{number}{ours}")
            lock, where = stage.root / ".git" / name, f"{scene.name}, {name}{', of a killed run' if ours else ''}"
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
            if ours:
                (stage.root / ".git" / "ratchet" / "holder.json").touch()
            before = State.of(stage)
            if not ours:
                scene.turn(stage)
                if not lock.exists():
                    tally.files_changed += 1
                    complain(f"{where}: removed, although no run of ours left it")
                lock.unlink(missing_ok=True)
                stage.git("reset", "-q")  # as the turn says, where the index was locked
            tally.add(aftermath(scene, stage, before, complain, where=where))
    return tally


# --- others ---


@dataclass(frozen=True, kw_only=True)
class _Crowd:
    stages: list[Stage]
    turns: int
    written: Path
    """A line for each row that a turn said it wrote."""

    def run(self, chance: random.Random) -> list[int]:
        return ended(*(child(lambda n=n: self._work(n, chance.random())) for n in range(WRITERS)))  # type: ignore[misc]

    def _work(self, number: int, seed: float) -> None:
        """Every other one judges only; the others run experiments, if the kernel is theirs to change."""
        stage, chance = self.stages[number % len(self.stages)], random.Random(seed)
        for _ in range(self.turns):
            if len(self.stages) == 1 or number >= len(self.stages):
                done = judge_only(root=stage.root, kernel=Path(stage.kernel), judge=StageJudge(stage))
            else:
                stage.write(kernel_text(chance.choice((900.0, 1000.0 + number + chance.random()))))
                done = stage.run("one of many", wait_s=600)
            with self.written.open("a") as file:
                file.write("".join(f"{row.id}\n" for row in (done.baseline, done.row) if row))


def at_once(folder: Path, complain: Complain, *, worktrees: int, turns: int, chance: random.Random) -> Tally:
    """``WRITERS`` processes at once in one repository with so many worktrees: nobody's row is lost."""
    main = replace(KEPT, kernel=kernel_text(1000.0)).make(folder / f"crowd{worktrees}")
    stages = [main]
    for number in range(1, worktrees):
        stages.append(Stage(root=folder / f"crowd{worktrees} {number}"))
        main.git("worktree", "add", "-q", "-b", f"side{number}", str(stages[-1].root))
    crowd = _Crowd(stages=stages, turns=turns, written=folder / f"rows{worktrees}")
    codes = crowd.run(chance)
    tally = Tally(strikes=WRITERS * turns, unfinished=sum(code != 0 for code in codes))
    if tally.unfinished:
        complain(f"{WRITERS} at once in {worktrees} worktrees: exit codes {codes}")
    there = {row.id for stage in stages for row in stage.rows()}
    tally.rows_lost = len(set(crowd.written.read_text().split()) - there)
    for stage in stages:
        origins = log.verify_origins(stage.root).by_id.values()
        if findings := [*log.verify(stage.root), *(one for one in origins if one is not Origin.HERE)]:
            tally.verify_failures += 1
            complain(f"{WRITERS} at once in {worktrees} worktrees: verify: {findings}")
        tally.files_changed += (stage.root / "other.txt").read_text() != "other\n"
    if tally.rows_lost:
        complain(f"{WRITERS} at once in {worktrees} worktrees: of all rows, only {sorted(there)}")
    return tally
