"""One run at a time in a repository, Ctrl-C only where it can do no harm, and files of what is still to be done."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from filelock import FileLock, Timeout

from ratchet.loop import plumbing
from ratchet.loop.history import History
from ratchet.loop.ledger import sync_folder, writing
from ratchet.process.boot import home
from ratchet.process.sandbox.folder import read_file
from ratchet.values.status import Refusal, Status

_HOLDER_BYTES = 1 << 16


@contextlib.contextmanager
def locked(history: History, *, message: str, wait_s: float, progress: Callable[[str], None]) -> Iterator[None]:
    """Holds the repository's lock, shared by all its worktrees; the kernel drops it should this process be killed.

    What a run that was killed left of git's own locks is removed first.

    Raises:
        Refusal: BUSY after ``wait_s`` seconds, saying who holds it.
    """
    holder = history.common_dir / "ratchet" / "holder.json"
    lock = FileLock(history.common_dir / "ratchet.lock")
    with writing(str(lock.lock_file)):
        holder.parent.mkdir(exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if wait_s > 0:
                progress(f"waiting for {_who(holder)}")
            try:
                lock.acquire(timeout=max(wait_s, 0), poll_interval=0.1)
            except Timeout:
                hint = "wait for it to end, or give --wait SECONDS"
                raise Refusal(Status.BUSY, f"another experiment is running: {_who(holder)}; {hint}") from None
    try:
        killed = _git_dir(holder)
        if killed is not None:
            for line in plumbing.clear(root=history.root, common_dir=history.common_dir, git_dir=killed):
                progress(line)
        with writing(str(holder)):
            since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            about = {"pid": os.getpid(), "since": since, "message": message[:200]}
            holder.write_text(json.dumps({**about, "git_dir": str(history.state_dir.parent)}))
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink(missing_ok=True)
        lock.release()


def under_way(history: History) -> str:
    """The message of the experiment that runs now in this repository; ``""`` where none does. Takes no lock."""
    try:
        record = json.loads(read_file(history.common_dir / "ratchet" / "holder.json", _HOLDER_BYTES))
        os.kill(int(record["pid"]), 0)
        return str(record["message"])
    except PermissionError:  # it runs, as another user
        return str(record["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _who(holder: Path) -> str:
    try:
        record = json.loads(read_file(holder, _HOLDER_BYTES))
        return f"process {record['pid']} since {record['since']}, {record['message']!r}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has only just begun"


def _git_dir(holder: Path) -> Path | None:
    """The git folder of the run that ended without removing its ``holder``; None where the last one did."""
    if not os.path.lexists(holder):
        return None
    common_dir = holder.parent.parent
    try:
        named = Path(json.loads(read_file(holder, _HOLDER_BYTES))["git_dir"])
    except (OSError, ValueError, KeyError, TypeError):
        return common_dir
    return named if named.parent == common_dir / "worktrees" else common_dir


class Interrupts:
    """Turns SIGINT, SIGTERM and SIGHUP into KeyboardInterrupt, except within ``held``, where they wait.

    Outside the main thread, where Python allows no handlers, it does nothing. Signals that were ignored stay ignored.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._waiting = False

    @contextlib.contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Handlers for as long as the block runs.

        Raises:
            Refusal: INTERRUPTED in place of a KeyboardInterrupt that leaves the block.
        """
        before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    before[number] = signal.signal(number, self._handle)
        try:
            yield self
        except KeyboardInterrupt:
            raise Refusal(Status.INTERRUPTED, "interrupted: nothing was kept or lost") from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self._waiting = True
        else:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self, *, to_the_end: bool = False) -> Iterator[None]:
        """A block that a signal does not cut in two: once a decision is being enacted, it is enacted whole.

        ``to_the_end``: nor anything after it, because its outcome is the turn's.
        """
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= not to_the_end

    def check(self) -> None:
        """Raises:
        KeyboardInterrupt: a signal came while the last ``held`` block ran.
        """
        if self._waiting:
            raise KeyboardInterrupt


def write_journal(path: Path, record: object) -> None:
    """Replaces the file of what is still to be done, on the disk before this returns. Raises as ``writing``."""
    spare = path.with_suffix(".new")
    with writing("the journal"):
        with open(spare, "w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(spare, path)
        sync_folder(path.parent)


def clear_journal(path: Path) -> None:
    """Removes it: all is done. Raises as ``writing``."""
    with writing("the journal"):
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def unreadable_journal(path: Path, error: Exception) -> Refusal:
    """Of a journal that is damaged."""
    message = f"the journal {path} is unreadable ({error}): keep a copy, remove it, and run `{home.PROGRAM} verify`"
    return Refusal(Status.LEDGER_BROKEN, message)
