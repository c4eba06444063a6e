"""One run of a user's command: limits, a transcript, few places to write to, and nothing left of it after.

What it may not change is read by hash before it starts and after it ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ratchet.exam.problem.problem import lock_path
from ratchet.loop import ledger
from ratchet.loop.history import History
from ratchet.process.sandbox import landlock, launcher, system
from ratchet.values.status import Refusal, Status

PRINTED_BYTES = 64 << 20
"""A command that prints more is ended: transcripts are kept."""
FREE_BYTES = 512 << 20
"""One that leaves less of a disk that it can write is ended: the judge needs some, and the ledger."""
_POLL_S = 0.05
_OF_GIT = ("HEAD", "config", "config.worktree", "packed-refs", "refs", "info", "hooks", "ratchet")
"""What a repository's git folder says, its objects and the lists of its work trees left out."""

Listing = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a command ended."""

    exit_code: int | None
    """Negative for a signal; None where it was ended at a limit."""
    seconds: float
    limit: str = ""
    """Which limit, in words; ``""`` for the time, or where it ended by itself."""


def run(
    words: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    transcript: Path,
    seconds: float,
    writable: Sequence[Path],
) -> Run:
    """Run a command to its end, or to its first limit; whatever it started ends with it.

    Raises:
        Refusal: NOT_FOUND where it cannot be started.
    """
    system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)  # what it starts and leaves becomes a child of ours
    began = time.monotonic()
    with transcript.open("xb") as said:
        try:
            process = subprocess.Popen(
                words,
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(landlock.confine_writes, [os.fspath(path) for path in writable]),  # noqa: PLW1509 - no threads here
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Refusal(Status.NOT_FOUND, f"the command {words[0]!r:.100} cannot be started: {error}") from None
    limits: list[str] = []

    def is_over() -> bool:
        limits.extend(_over(transcript, writable))
        return bool(limits) or time.monotonic() >= began + seconds

    try:
        code = _ended(process.pid, is_over)
    finally:
        launcher.sweep(process.pid)
        process.returncode = 0  # it is reaped: nobody has to wait for it any more
        if transcript.stat().st_size > PRINTED_BYTES:
            os.truncate(transcript, PRINTED_BYTES)
    return Run(exit_code=code, seconds=time.monotonic() - began, limit="".join(limits[:1]))


def remove(folder: Path) -> None:
    """Take a folder away that a command could write, with the read-only folders in it."""
    for parent, names, _ in os.walk(folder):
        for name in names:
            if not os.path.islink(path := os.path.join(parent, name)):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _over(transcript: Path, writable: Sequence[Path]) -> list[str]:
    """Which limits are passed, of what was printed and of the disks that can be written."""
    said = [f"it printed more than {PRINTED_BYTES >> 20} MiB"] * (transcript.stat().st_size > PRINTED_BYTES)
    for path in (transcript.parent, *writable):
        with contextlib.suppress(OSError):
            if shutil.disk_usage(path).free < FREE_BYTES:
                said.append(f"it left less than {FREE_BYTES >> 20} MiB of the disk")
    return said


def _ended(pid: int, is_over: Callable[[], bool]) -> int | None:
    """Exit code of a child, which stays a zombie; None where ``is_over`` first."""
    while True:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        if is_over():
            return None
        time.sleep(_POLL_S)


def listing(paths: Iterable[Path]) -> Listing:
    """Every file and link below ``paths``, by its path: mode and SHA-256, or where a link leads. Folders too."""
    return {os.fspath(path): _what(path) for top in paths for path in _below(top)}


def of_tree(tree: Path, kernel: str) -> Listing:
    """A work tree, without its kernel file."""
    return {path: what for path, what in listing([tree]).items() if path != os.fspath(tree / kernel)}


def of_repository(root: Path, kernel: str) -> Listing:
    """What the loop goes by: refs, configuration, ledger, kernel file and its lock."""
    history = History(root)
    names = (ledger.NAME, kernel, lock_path(Path(kernel)))
    folders = dict.fromkeys((history.common_dir, history.state_dir.parent))
    return listing([*(folder / name for folder in folders for name in _OF_GIT), *(root / name for name in names)])


def changed(before: Listing, after: Listing) -> list[str]:
    """Paths that differ, sorted."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _below(top: Path) -> Iterator[Path]:
    if not os.path.lexists(top):
        return
    yield top
    if top.is_dir() and not top.is_symlink():
        for parent, folders, files in os.walk(top, followlinks=False):
            yield from (Path(parent, name) for name in (*folders, *files))


def _what(path: Path) -> str:
    try:
        status = path.lstat()
        if path.is_symlink():
            return f"link {os.readlink(path)!r}"
        if not path.is_file():
            return f"{status.st_mode:o}"
        with path.open("rb") as file:
            return f"{status.st_mode:o} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:  # gone meanwhile, or not readable any more
        return f"{error.strerror}"
