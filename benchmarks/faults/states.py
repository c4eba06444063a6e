"""States that a turn begins in or meets: full disks, what cannot be written, clocks, locks, others at work.

And kills of whole turns, with the real judge.
"""

from __future__ import annotations

import datetime as clock
import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.faults.scene import KEPT, SCENES, Scene, State, Tally, aftermath
from ratchet.loop import ledger, log
from ratchet.loop.judge_only import judge_only
from ratchet.process.sandbox.system import drop_capabilities
from ratchet.values import Decision
from ratchet.values.row import Origin
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, StageJudge, kernel_text
from tests.workspaces import BETTER, Workspace

DISK_BYTES = 3 << 20
LOCKS = ("index.lock", "HEAD.lock", "packed-refs.lock", "refs/heads/main.lock", "refs/ratchet/tips/main.lock")
READ_ONLY = (
    *(".", "results.tsv", "kernel.py", ".ratchet", ".git", ".git/index", ".git/ratchet"),
    *(".git/objects", ".git/refs", ".git/refs/heads", ".git/refs/ratchet", ".git/refs/ratchet/rows", ".git/logs"),
)
WRITERS = 8
BACK = (3600, 86400, 3 * 365 * 86400)
"""Seconds."""
PATIENCE_S = 1200.0
ENDINGS = (Status.PASS.exit_code, Status.NO_CHANGE.exit_code)


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


def full_disk(folder: Path, left: list[int]) -> tuple[Tally, str]:
    """The disk fills up while judging, except ``left`` bytes; then there is room again. Also how it was made."""
    tally, disks = Tally(), set()
    for scene in SCENES[:4]:
        for bytes_left in left:
            with small_disk(folder / "disk") as disk:
                tally.add(_filled(scene, folder / "disk", bytes_left, real=disk.startswith("tmpfs")))
                disks.add(disk)
            shutil.rmtree(folder / "disk", ignore_errors=True)
    return tally, ", ".join(disks)


def _filled(scene: Scene, disk: Path, left: int, *, real: bool) -> Tally:
    stage, ballast = scene.make(disk / "repository"), disk / "ballast"

    def turn() -> None:
        stage.during = lambda: fill(ballast, left) if real else limit(left)
        scene.turn(stage)

    ended(child(turn))
    ballast.unlink(missing_ok=True)
    return aftermath(scene, stage, State.of(stage), where=f"{scene.name}, a disk with {left} bytes left")


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


# --- folders that cannot be written ---


def read_only(folder: Path) -> Tally:
    """Files or folders cannot be written, from the start or while judging, by a user who is no root; then they can."""
    tally, cases = Tally(), itertools.product(SCENES[:4], READ_ONLY, (True, False))
    for number, (scene, name, while_judging) in enumerate(cases):
        stage = scene.make(folder / f"shut{number}")
        place = stage.root / name
        if not place.exists():
            continue

        mode, before = place.stat().st_mode, State.of(stage)
        turn = partial(_shut, scene, stage, place, mode & ~0o222, while_judging=while_judging)
        ended(child(turn))
        place.chmod(mode)
        where = f"{scene.name}, {name} cannot be written{' while judging' if while_judging else ''}"
        tally.add(aftermath(scene, stage, before, where=where))
        shutil.rmtree(stage.root)
    return tally


def _shut(scene: Scene, stage: Stage, place: Path, mode: int, *, while_judging: bool) -> None:
    """A turn of a process without root's powers, in which a place gets this mode."""
    drop_capabilities()
    if while_judging:
        stage.during = partial(place.chmod, mode)
    else:
        place.chmod(mode)
    scene.turn(stage)


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


def backwards(folder: Path) -> Tally:
    """The clock goes back before a turn, or while it judges; files look older than what git remembers of them."""
    tally = Tally()
    for number, (scene, seconds) in enumerate((scene, seconds) for scene in SCENES[:4] for seconds in BACK):
        stage = scene.make(folder / f"clock{number}")
        known = (stage.root / ".git" / "index").stat().st_mtime
        os.utime(stage.root / stage.kernel, (known - seconds, known - seconds))
        before = State.of(stage)
        with clock_back(seconds):
            tally.add(aftermath(scene, stage, before, where=f"{scene.name}, {seconds} s back"))
        ids = [row.id for row in stage.rows()]
        unsorted = ids != sorted(set(ids))
        tally.note("verify_failures", f"{scene.name}, {seconds} s back: the ids do not sort: {ids}", unsorted)
    return tally


# --- locks ---


def stale_locks(folder: Path) -> Tally:
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
                tally.note("files_changed", f"{where}: removed, although no run of ours left it", not lock.exists())
                lock.unlink(missing_ok=True)
                stage.git("reset", "-q")  # as the turn says, where the index was locked
            tally.add(aftermath(scene, stage, before, where=where))
    return tally


# --- others ---


def at_once(folder: Path, *, worktrees: int, turns: int, chance: random.Random) -> Tally:
    """``WRITERS`` processes at once in one repository with so many worktrees: nobody's row is lost."""
    main = replace(KEPT, kernel=kernel_text(1000.0)).make(folder / f"crowd{worktrees}")
    stages = [main]
    for number in range(1, worktrees):
        stages.append(Stage(root=folder / f"crowd{worktrees} {number}"))
        main.git("worktree", "add", "-q", "-b", f"side{number}", str(stages[-1].root))
    written = folder / f"rows{worktrees}"

    def work(number: int, seed: float) -> None:
        """Every other one judges only; the others run experiments, if the kernel is theirs to change."""
        stage, own = stages[number % worktrees], random.Random(seed)
        for _ in range(turns):
            if worktrees == 1 or number >= worktrees:
                done = judge_only(root=stage.root, kernel=Path(stage.kernel), judge=StageJudge(stage))
            else:
                stage.write(kernel_text(own.choice((900.0, 1000.0 + number + own.random()))))
                done = stage.run("one of many", wait_s=600)
            with written.open("a") as file:  # a line for each row that a turn says it wrote
                file.write("".join(f"{row.id}\n" for row in (done.baseline, done.row) if row))

    tally, where = Tally(strikes=WRITERS * turns), f"{WRITERS} at once in {worktrees} worktrees"
    codes = ended(*(child(partial(work, number, chance.random())) for number in range(WRITERS)))
    tally.note("unfinished", f"{where}: exit codes {codes}", sum(code != 0 for code in codes))
    there = {row.id for stage in stages for row in stage.rows()}
    lost = set(written.read_text().split()) - there
    tally.note("rows_lost", f"{where}: of all rows, only {sorted(there)}", len(lost))
    for stage in stages:
        origins = log.verify_origins(stage.root).by_id.values()
        findings = [*log.verify(stage.root), *(one for one in origins if one is not Origin.HERE)]
        tally.note("verify_failures", f"{where}: verify: {findings}", bool(findings))
        changed = (stage.root / "other.txt").read_text() != "other\n"
        tally.note("files_changed", f"{where}: other.txt", changed)
    return tally


# --- whole turns ---


def whole_turns(folder: Path, kills: int, chance: random.Random) -> Tally:
    """A whole ``./ratchet.sh`` with its real judge, ended at random times, each on what the one before left.

    Its children have to end by themselves. Then comes one that may end.
    """
    space, tally = Workspace.new(folder / "whole"), Tally()
    (space.root / "tests.txt").write_text("the user's\n")
    space.git("add", "tests.txt")
    space.git("commit", "-q", "-m", "a file of the user's")
    start = time.monotonic()
    done = space.ratchet("baseline")
    whole = time.monotonic() - start
    if done.returncode:
        raise RuntimeError(f"the baseline fails: {done.stdout}{done.stderr}")
    space.edit(BETTER)
    for _ in range(kills):
        before, seconds = space.ledger.read_bytes(), chance.uniform(0.0, whole)
        process = space.start(str(space.root / "ratchet.sh"), "an idea")
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)  # what it printed to is closed once its children ended
        tally.strikes += 1
        cut = not space.ledger.read_bytes().startswith(before)
        tally.note("rows_lost", f"whole turn, {seconds:.1f} s: the ledger does not begin as before", cut)
        _verify(space, tally, f"whole turn, {seconds:.1f} s")
    rows, done = space.rows(), space.ratchet("an idea")
    kept = [row.commit for row in space.rows() if row.decision == Decision.KEPT]
    where = f"the turn after all strikes: exit code {done.returncode}: {done.stderr}"
    # A turn may have been ended after it had kept the kernel: then there is nothing to judge any more.
    tally.note("unfinished", where, done.returncode not in ENDINGS or kept != [space.git("rev-parse", "HEAD")])
    tally.note("rows_lost", f"{where}: rows are gone", sum(row not in space.rows() for row in rows))
    lost = [row for row in space.rows() if space.git("cat-file", "-t", row.commit) != "commit"]
    tally.note("commits_lost", f"{where}: commits are gone", len(lost))
    tally.note("files_changed", f"{where}: tests.txt", space.read("tests.txt") != "the user's\n")
    _verify(space, tally, "the turn after all strikes")
    return tally


def _verify(space: Workspace, tally: Tally, where: str) -> None:
    done = space.ratchet("verify")
    broken = done.returncode != 0 or "not signed" in done.stdout or "BROKEN" in done.stdout
    tally.note("verify_failures", f"{where}: verify: {done.stdout}{done.stderr}", broken)
