"""Enacting a merge of two ledgers, so that a kill at any instant loses neither.

What is to be done is written to ``<git dir>/ratchet/joined.json`` first. Then the ledger is replaced as a whole, the
branch moves, kernel files follow it where the other line was only ahead, and the mark is removed. Each step may be
repeated: ``recover`` runs them all again for a mark that it finds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ratchet.loop import ledger, state
from ratchet.loop.history import History
from ratchet.loop.refs import MACS, ROWS, tip_ref
from ratchet.loop.state import JOINED
from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Joining:
    """What a merge does to ledger, branch and files. All but ``branch``, ``old``, ``new`` and names are blobs."""

    branch: str
    old: str
    """HEAD before the merge."""
    new: str
    """HEAD after it."""
    before: str
    """The ledger before; ``""`` where there was none."""
    after: str
    tip: str
    """The last row's line."""
    row: str = ""
    """Id of the merge row, where one was made; its line is ``tip``."""
    mac: str = ""
    files: tuple[str, ...] = ()
    """Kernel files and locks that follow the branch."""


def enact(history: History, joining: Joining) -> None:
    """The caller holds the lock, and the refs of all rows that came are set.

    Raises:
        Refusal: BRANCH_MOVED with everything as it was; as ``recover``.
    """
    state.save(history.git, JOINED, asdict(joining))
    _finish(history, joining)


def recover(history: History) -> tuple[str, ...]:
    """Finishes a merge that was cut off; says so. The caller holds the lock.

    Raises:
        Refusal: OPERATION_UNDER_WAY if that was on another branch than HEAD's; BRANCH_MOVED; LEDGER_BROKEN.
    """
    refused = state.refused(history.git, JOINED)
    joining = _load(history)
    if joining is None:
        return refused
    if history.checks.head().branch != joining.branch:
        name = joining.branch.removeprefix("refs/heads/")
        message = f"a merge on branch {name} was cut off: `git switch {name}` and run again to finish it"
        raise Refusal(Status.OPERATION_UNDER_WAY, message)
    _finish(history, joining)
    return ("finished a merge that was cut off",)


def unfinished(history: History) -> bool:
    """Whether a merge was begun and not finished."""
    return _load(history) is not None


def _finish(history: History, joining: Joining) -> None:
    objects, refs, files = history.objects, history.refs, history.files
    before = objects.blob(joining.before) if joining.before else None
    after, now = objects.blob(joining.after), ledger.load_bytes(history.root / ledger.NAME)
    if now not in (before, after):
        message = f"{ledger.NAME} changed while a merge was enacted: {ledger.REPAIR}, then merge again"
        state.clear(history.git, JOINED)
        raise Refusal(Status.LEDGER_BROKEN, message)
    files.write(ledger.NAME, after)
    try:
        refs.move_branch(joining.branch, new=joining.new, old=joining.old, reason="ratchet: merge")
    except Refusal:
        if not refs.is_ancestor(joining.new, joining.branch):
            _take_back(history, before)
            raise
    targets = {tip_ref(joining.branch): joining.tip}
    if joining.row:
        targets[ROWS + joining.row] = joining.tip
    if joining.mac:
        targets[MACS + joining.row] = joining.mac
    refs.point(targets)
    for path in joining.files:
        old, new = objects.entry(joining.old, path), objects.entry(joining.new, path)
        files.restore(path, blob=new.blob if new else None, judged=old.blob if old else None)
    files.sync_index(old=joining.old, new=joining.new, paths=(*joining.files, ledger.NAME))
    state.clear(history.git, JOINED)


def _take_back(history: History, before: bytes | None) -> None:
    if before is None:
        history.tree.unlink(ledger.NAME)
    else:
        history.files.write(ledger.NAME, before)
    state.clear(history.git, JOINED)


def _load(history: History) -> Joining | None:
    record: dict[str, Any] | None = state.known(history.git, JOINED)
    if record is None:
        return None
    try:
        files = tuple(map(str, record.pop("files")))
        return Joining(**{name: str(value) for name, value in record.items()}, files=files)
    except (KeyError, TypeError, AttributeError) as error:
        raise state.unreadable(history.git, JOINED, error) from error
