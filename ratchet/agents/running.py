"""One run of a user's command: limits, a transcript, few places to write to, and nothing left of it after.

What it may not change is read by hash before it starts and after it ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from ratchet.exam.problem.problem import lock_path
from ratchet.loop import ledger
from ratchet.loop.history import History
from ratchet.process import paths
from ratchet.process.root import Root
from ratchet.process.sandbox import landlock, launcher, system
from ratchet.values.status import Refusal, Status

PRINTED_BYTES = 64 << 20
"""A command that prints more is ended: transcripts are kept."""
FREE_BYTES = 512 << 20
"""One that leaves less of a disk that it can write is ended: the judge needs some, and the ledger."""
_POLL_S = 0.05
_GRACE_S = 5.0
"""For what is left in the pipe once all that wrote to it have ended."""
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
    hidden: Path | None = None,
) -> Run:
    """Run a command to its end, or to its first limit; whatever it started ends with it.

    What is below ``hidden`` it cannot read, where the machine has Landlock.

    Raises:
        Refusal: NOT_FOUND where it cannot be started.
    """
    system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)  # what it starts and leaves becomes a child of ours
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # of a file it would have the descriptor, and could cut it off
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(landlock.confine, writable, hidden),  # noqa: PLW1509 - no threads here
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Refusal(Status.NOT_FOUND, f"the command {words[0]!r:.100} cannot be started: {error}") from None
    assert process.stdout is not None
    said = _Transcript(process.stdout)
    limits: list[str] = []

    def is_over() -> bool:
        limits.extend(_over(said, (transcript.parent, *writable)))
        return bool(limits) or time.monotonic() >= began + seconds

    try:
        code = _ended(process.pid, is_over)
    finally:
        launcher.sweep(process.pid)
        process.returncode = 0  # it is reaped: nobody has to wait for it any more
        paths.write(transcript, said.end())
    return Run(exit_code=code, seconds=time.monotonic() - began, limit="".join(limits[:1]))


class _Transcript:
    """What a command prints, read from a pipe as it comes."""

    def __init__(self, source: IO[bytes]) -> None:
        self.size, self._pieces, self._source = 0, list[bytes](), source
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while data := os.read(self._source.fileno(), 1 << 16):
            if self.size <= PRINTED_BYTES:
                self._pieces.append(data)
                self.size += len(data)

    def end(self) -> bytes:
        """All of it that counts; the pipe is closed once its writers are gone."""
        self._thread.join(_GRACE_S)
        if not self._thread.is_alive():
            self._source.close()
        return b"".join(self._pieces)[:PRINTED_BYTES]


def _over(transcript: _Transcript, disks: Sequence[Path]) -> list[str]:
    """Which limits are passed, of what was printed and of the disks that can be written."""
    said = [f"it printed more than {PRINTED_BYTES >> 20} MiB"] * (transcript.size > PRINTED_BYTES)
    for path in disks:
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


def listing(root: Root, names: Iterable[str]) -> Listing:
    """Every file, link and folder of these names and below, by its path: mode and SHA-256, or which link it is."""
    return {os.fspath(root.path / one): _what(root, one, state) for name in names for one, state in _below(root, name)}


def of_tree(tree: Path, kernel: str) -> Listing:
    """A work tree, without its kernel file."""
    return {path: what for path, what in listing(Root(tree), ["."]).items() if path != os.fspath(tree / kernel)}


def of_repository(root: Path, kernel: str) -> Listing:
    """What the loop goes by: refs, configuration, ledger, kernel file and its lock."""
    history = History(root)
    own, common = listing(history.git, _OF_GIT), listing(history.common, _OF_GIT)
    return {**own, **common, **listing(history.tree, (ledger.NAME, kernel, str(lock_path(Path(kernel)))))}


def changed(before: Listing, after: Listing) -> list[str]:
    """Paths that differ, sorted."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _below(root: Root, name: str) -> Iterator[tuple[str, os.stat_result]]:
    state = root.state(name)
    if state is None:
        return
    yield name, state
    for entry in root.names(name) if stat.S_ISDIR(state.st_mode) else ():
        yield from _below(root, entry if name == "." else f"{name}/{entry}")


def _what(root: Root, name: str, state: os.stat_result) -> str:
    if not stat.S_ISREG(state.st_mode):
        made = f" {state.st_ino} {state.st_mtime_ns}" if stat.S_ISLNK(state.st_mode) else ""
        return f"{state.st_mode:o}{made}"
    try:
        with root.open(name) as file:
            return f"{state.st_mode:o} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:  # gone meanwhile, or not readable any more
        return f"{error.strerror}"
