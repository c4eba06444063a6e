"""A candidate that comes as bytes: it is in the kernel file for as long as it is judged, and nobody edits it there.

What is placed is written down first, in ``<git dir>/ratchet/placed.json``. Should the run be killed, the next one that
holds the lock puts HEAD's kernel back where the file still holds those bytes; anything else in it is the user's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from ratchet.loop import journal, log, state
from ratchet.loop.history import History
from ratchet.loop.state import PLACED
from ratchet.loop.subject import Subject
from ratchet.loop.workspace import Interrupts, locked
from ratchet.values.status import Refusal, Status


@contextlib.contextmanager
def placed(subject: Subject, text: bytes | None) -> Iterator[None]:
    """The kernel file holds ``text`` within; None leaves it to the user. The caller holds the lock.

    Afterwards it holds what HEAD has, unless a decision is still to be enacted.

    Raises:
        Refusal: DIRTY if the kernel file differs from HEAD's, NOT_FOUND if HEAD has none.
    """
    if text is None:
        yield
        return
    history = subject.history
    committed = _committed(subject)
    if _differs(subject, committed):
        raise Refusal(Status.DIRTY, f"{subject.kernel} differs from HEAD's: judge it, or `git checkout` it, first")
    blob = history.files.store(subject.kernel, text)
    state.save(history.git, PLACED, {"kernel": subject.kernel, "blob": blob})
    try:
        history.files.restore(subject.kernel, blob=blob, judged=committed)
        yield
    finally:
        if journal.unfinished(history) is None:
            _take_back(history)


def candidate(history: History) -> str:
    """The kernel file that holds a candidate of a run, not of the user's; ``""`` where none does. Takes no lock."""
    record = state.known(history.git, PLACED)
    if record is None:
        return ""
    kernel = str(record["kernel"])
    with contextlib.suppress(Refusal):
        entry = history.files.entry(kernel, None)
        if entry is not None and entry.blob == record["blob"]:
            return kernel
    return ""


def recover(history: History) -> tuple[str, ...]:
    """Takes back what a killed run had placed; says so. The caller holds the lock, and has finished the journal."""
    refused = state.refused(history.git, PLACED)
    name = _take_back(history)
    return (*refused, f"{name} held a candidate of a run that was cut off: HEAD's is back") if name else refused


@contextlib.contextmanager
def begun(
    root: Path, *, message: str, wait_s: float, progress: Callable[[str], None]
) -> Iterator[tuple[History, Interrupts]]:
    """The repository, locked, after what an earlier run was cut off from was finished; ``message`` says who holds it.

    Raises:
        Refusal: as ``run_experiment`` before it judges.
    """
    with Interrupts().installed() as interrupts, contextlib.ExitStack() as stack:
        history = History(root)
        stack.enter_context(locked(history, message=message, wait_s=wait_s, progress=progress))
        head = history.checks.ready()
        with interrupts.held():
            back = log.put_back(history, head)
            finished = (*filter(None, [back]), *journal.recover(history), *recover(history))
        interrupts.check()
        for line in finished:
            progress(line)
        yield history, interrupts


def committed(root: Path, kernel: Path, *, wait_s: float, progress: Callable[[str], None]) -> tuple[str, bytes]:
    """The kernel's path relative to the top, and its bytes, after an earlier run was finished: HEAD's are in the file.

    Raises:
        Refusal: DIRTY if they are not, and as ``run_experiment``.
    """
    with begun(root, message="search", wait_s=wait_s, progress=progress) as (history, _):
        subject = Subject.of(history, kernel)
        blob = _committed(subject)
        if _differs(subject, blob):
            message = f"{subject.kernel} differs from HEAD's: judge it as an experiment, or `git checkout` it, first"
            raise Refusal(Status.DIRTY, message)
        return subject.kernel, history.objects.blob(blob)


def _committed(subject: Subject) -> str:
    head = subject.history.checks.head()
    entry = subject.history.objects.entry(head.commit, subject.kernel)
    if entry is None:
        raise Refusal(Status.NOT_FOUND, f"HEAD has no {subject.kernel}: commit it, or judge it once, first")
    return entry.blob


def _differs(subject: Subject, blob: str) -> bool:
    entry = subject.history.files.entry(subject.kernel, None)
    return entry is None or entry.blob != blob


def _take_back(history: History) -> str:
    """Puts HEAD's kernel back where the file holds what was placed; returns the file's name if it did."""
    record = state.known(history.git, PLACED)
    if record is None:
        return ""
    kernel, blob = str(record["kernel"]), str(record["blob"])
    entry = history.objects.entry(history.checks.head().commit, kernel)
    file = history.files.entry(kernel, entry)
    left = entry is not None and file is not None and file.blob == blob != entry.blob
    if left and entry is not None:
        history.files.restore(kernel, blob=entry.blob, judged=blob)
    state.clear(history.git, PLACED)
    return kernel if left else ""
