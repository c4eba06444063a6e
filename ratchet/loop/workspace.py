"""One run at a time in a repository, Ctrl-C only where it can do no harm."""

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
from typing import Any

from ratchet.loop import plumbing, state
from ratchet.loop.history import History
from ratchet.loop.ledger import writing
from ratchet.process.root import Root
from ratchet.values.status import Refusal, Status

HOLDER = "ratchet/holder.json"
_HOLDER_BYTES = 1 << 16
LOCK = "ratchet.lock"
"""In the git folder that all work trees share."""


@contextlib.contextmanager
def locked(history: History, *, message: str, wait_s: float, progress: Callable[[str], None]) -> Iterator[None]:
    """Holds the repository's lock, shared by all its worktrees; the kernel drops it should this process be killed.

    What a run that was killed left of git's own locks is removed first.

    Raises:
        Refusal: BUSY after ``wait_s`` seconds, saying who holds it.
    """
    git = history.common
    with contextlib.ExitStack() as stack:
        with writing(str(git.path / LOCK)):
            git.make_folder(state.FOLDER)
            try:
                stack.enter_context(git.locked(LOCK))
            except BlockingIOError:
                if wait_s > 0:
                    progress(f"waiting for {_who(git)}")
                try:
                    stack.enter_context(git.locked(LOCK, wait_s=wait_s))
                except BlockingIOError:
                    hint = "wait for it to end, or give --wait SECONDS"
                    raise Refusal(Status.BUSY, f"another experiment is running: {_who(git)}; {hint}") from None
            for folder in (git, history.git):
                folder.sweep(state.FOLDER)  # of runs that were killed
        try:
            killed = _git_dir(git)
            if killed is not None:
                for line in plumbing.clear(root=history.root, common_dir=git.path, git_dir=killed):
                    progress(line)
            since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            about = {"pid": os.getpid(), "since": since, "message": message[:200]}
            record = {**about, "git_dir": str(history.git.path)}
            with writing(str(git.path / HOLDER)):
                git.write(HOLDER, json.dumps(record).encode(), flush=False)
            yield
        finally:
            with contextlib.suppress(OSError):
                git.unlink(HOLDER)


def under_way(history: History) -> str:
    """The message of the experiment that runs now in this repository; ``""`` where none does. Takes no lock."""
    try:
        record = _holder(history.common)
        os.kill(int(record["pid"]), 0)
        return str(record["message"])
    except PermissionError:  # it runs, as another user
        return str(record["message"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return ""


def _holder(git: Root) -> Any:
    """Who holds the lock, by its own words: it is shown, and says which of this repository's folders to look into."""
    try:
        return json.loads(git.read(HOLDER, _HOLDER_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def _who(git: Root) -> str:
    try:
        record = _holder(git)
        return f"process {record['pid']} since {record['since']}, {record['message']!r}"
    except (KeyError, TypeError):
        return "a process that has only just begun"


def _git_dir(git: Root) -> Path | None:
    """The git folder of the run that ended without saying so; None where the last one did."""
    if not git.exists(HOLDER):
        return None
    try:
        named = Path(_holder(git)["git_dir"])
    except (ValueError, KeyError, TypeError):
        return git.path
    return named if named.parent == git.path / "worktrees" else git.path


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
