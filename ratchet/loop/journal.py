"""From a decision to its enactment, so that a kill at any instant between the two loses neither.

A decision is written to ``<git dir>/ratchet/pending.json`` before anything acts on it. Then the row is appended,
the row's refs are set, the branch is moved or the kernel file restored, and the journal is removed. Each of
these may be repeated: ``recover`` runs them all again for a journal that it finds.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ratchet.exam.problem.problem import lock_path
from ratchet.loop import joined, ledger, state
from ratchet.loop.history import History
from ratchet.loop.ledger import Addition
from ratchet.loop.origin import origin, sign
from ratchet.loop.refs import MACS, ROWS, tip_ref
from ratchet.loop.state import PENDING
from ratchet.process import key
from ratchet.values import Decision, Row
from ratchet.values.row import Origin
from ratchet.values.status import Refusal, Status

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a decision does to branch and files, besides the row."""

    branch: str
    old: str
    """HEAD when the experiment began."""
    new: str
    """The commit with the judged kernel."""
    kernel: str
    judged: str
    """Blob of the judged kernel."""
    lock: str
    """Path of the kernel's problem lock."""
    lock_now: str | None = None
    """Blob of the lock after judging."""
    lock_back: str | None = None
    """Blob that ``restore_lock`` brings back; None: no file."""
    move: bool = False
    restore_kernel: bool = False
    restore_lock: bool = False


@dataclass(frozen=True, kw_only=True)
class _Pending:
    id: str
    plan: Plan
    added: Addition
    mac: str = ""
    """Made when the row was decided, and only then: what somebody else writes into a journal is never signed."""

    @property
    def signed(self) -> bool:
        """Whether this machine's key made the MAC, or there is no key."""
        known = key.known()
        return known is None or origin(known, self.added.line, self.mac) is Origin.HERE


@dataclass(frozen=True, kw_only=True)
class Enacted:
    """What came of a decision."""

    row: Row
    """The last row that was written: a correction of the decision's own row if the branch had moved."""
    moved: bool
    """The branch had moved: the decision could not be enacted."""
    notes: tuple[str, ...]


def record(history: History, row: Row, plan: Plan, *, signed: bool = True) -> Enacted:
    """Appends ``row`` (``previous`` is filled in here) and enacts ``plan``. The caller holds the workspace lock.

    ``signed``: with a MAC by this machine's key, if there is one.

    Raises:
        Refusal: NO_SPACE, LEDGER_UNWRITABLE or LEDGER_BROKEN, with nothing appended and nothing enacted.
    """
    path = history.root / ledger.NAME
    data = ledger.load_bytes(path)
    added = ledger.addition(data, row)
    pending = _Pending(id=row.id, plan=plan, added=added, mac=sign(key.known() if signed else None, added.line))
    _store(history, pending)  # before the append: after it, space must not run out
    state.save(history.git, PENDING, asdict(pending))
    try:
        ledger.write(path, added)
    except Refusal:
        if ledger.load_bytes(path) == data:
            state.clear(history.git, PENDING)
        raise
    try:
        return _finish(history, pending)
    except Refusal as refusal:
        message = f"{refusal.message}; the row {row.id} is written, and the next run finishes what it says"
        raise Refusal(refusal.status, message) from refusal


def recover(history: History) -> tuple[str, ...]:
    """Finishes what an earlier run decided and did not enact; says what that was. The caller holds the lock.

    Raises:
        Refusal: OPERATION_UNDER_WAY if that was on another branch than HEAD's; LEDGER_BROKEN.
    """
    merged = (*joined.recover(history), *state.refused(history.git, PENDING))  # there is never one of each
    pending = _load(history)
    if pending is None:
        return merged
    row = ledger.parse_row(pending.added.line)
    branch, head = pending.plan.branch, history.checks.head()
    if head.branch != branch and history.refs.resolve(branch) is not None:
        name = branch.removeprefix("refs/heads/")
        message = f"experiment {row.id} on branch {name} was cut off: `git switch {name}` and run again to finish it"
        raise Refusal(Status.OPERATION_UNDER_WAY, message)
    if head.branch != branch:  # its branch is gone, and the ledger with it; git keeps the row
        history.refs.point(_store(history, pending))
        state.clear(history.git, PENDING)
        return (f"experiment {row.id} was cut off and its branch is gone; its row is in {ROWS}{row.id}",)
    path = history.root / ledger.NAME
    if not pending.added.fits(ledger.load_bytes(path) or b""):
        ledger.read(path)  # where it is damaged, that is said
        history.refs.point(_store(history, pending))  # git keeps the row
        return (*merged, state.set_aside(history.git, PENDING, f"is of another {ledger.NAME} than this"))
    ledger.write(path, pending.added)
    done = _finish(history, pending)
    return (f"finished experiment {row.id}, which was cut off: {done.row.decision}, {done.row.reason}", *done.notes)


def unfinished(history: History) -> str | None:
    """The id of an experiment that was decided and not enacted, if there is one."""
    pending = _load(history)
    return pending.id if pending else None


def _finish(history: History, pending: _Pending) -> Enacted:
    """All that follows the append; may be repeated."""
    plan = pending.plan
    row = ledger.parse_row(pending.added.line)
    refs = _store(history, pending)
    history.refs.point({**refs, tip_ref(plan.branch): refs[ROWS + row.id]})
    notes: list[str] = []
    if plan.move:
        if not _move(history, pending.id, plan):
            return _correct(history, pending, row)
        if history.refs.resolve(plan.branch) == plan.new:
            paths = (plan.kernel, plan.lock, ledger.NAME)
            if note := history.files.sync_index(old=plan.old, new=plan.new, paths=paths, judged=_blobs(plan)):
                notes.append(note)
    if plan.restore_kernel or plan.restore_lock:
        notes += _restore(history, plan)
    state.clear(history.git, PENDING)
    return Enacted(row=row, moved=False, notes=tuple(notes))


def _store(history: History, pending: _Pending) -> dict[str, str]:
    """The row's line and its MAC, stored; blobs by ref."""
    refs = {ROWS + pending.id: history.objects.store(pending.added.line.encode())}
    if pending.mac:
        refs[MACS + pending.id] = history.objects.store(pending.mac.encode())
    return refs


def _move(history: History, name: str, plan: Plan) -> bool:
    """Moves the branch by compare-and-swap; False if it is elsewhere. True as well if it moved on from ``new``."""
    try:
        history.refs.move_branch(plan.branch, new=plan.new, old=plan.old, reason=f"ratchet: keep {name}")
    except Refusal as refusal:
        if refusal.status is not Status.BRANCH_MOVED:
            raise
        return history.refs.is_ancestor(plan.new, plan.branch)
    return True


def _correct(history: History, pending: _Pending, row: Row) -> Enacted:
    """A row is never rewritten: one that says kept, of a branch that moved just then, is followed by a correction."""
    rows = ledger.read(history.root / ledger.NAME)
    reason = f"corrects row {row.id}: the branch had moved from {pending.plan.old[:10]}, so its commit was not kept"
    correction = dataclasses.replace(
        row,
        id=history.refs.reserve_id(rows[-1].id, row.commit),
        decision=Decision.JUDGED,
        reason=reason,
        time=ledger.utc_now(),
    )
    undo = dataclasses.replace(pending.plan, move=False)
    # Replaces the journal of the row it corrects. A row that somebody else wrote there is not signed by way of this.
    done = record(history, correction, undo, signed=pending.signed)
    return dataclasses.replace(done, moved=True)


def _restore(history: History, plan: Plan) -> list[str]:
    if history.refs.resolve(plan.branch) != plan.old:
        return [f"the branch has moved since: {plan.kernel} was left as it is"]
    notes = []
    if plan.restore_kernel:
        entry = history.objects.entry(plan.old, plan.kernel)
        if entry is None:
            notes.append(f"{plan.kernel} is not in HEAD, so there is nothing to go back to: it was left as it is")
        elif not history.files.restore(plan.kernel, blob=entry.blob, judged=plan.judged):
            notes.append(f"{plan.kernel} was changed while it was judged, so it was left as it is and not restored")
    if plan.restore_lock and not history.files.restore(plan.lock, blob=plan.lock_back, judged=plan.lock_now):
        notes.append(f"{plan.lock} was changed while the kernel was judged, so it was left as it is")
    staged = (plan.kernel, plan.lock) if plan.restore_kernel else (plan.lock,)
    if note := history.files.sync_index(old=plan.old, new=plan.old, paths=staged, judged=_blobs(plan)):
        notes.append(note)
    return notes


def _blobs(plan: Plan) -> tuple[str, ...]:
    return (plan.judged, plan.lock_now) if plan.lock_now else (plan.judged,)


# --- the file ---


def _load(history: History) -> _Pending | None:
    record = state.known(history.git, PENDING)
    if record is None:
        return None
    try:
        plan, added = _typed(Plan, record["plan"]), _typed(Addition, record["added"])
        if ledger.parse_row(added.line).id != record["id"]:
            raise ValueError(f"the row is not that of {record['id']!r:.40}")
        if plan.lock != lock_path(Path(plan.kernel)).as_posix():
            raise ValueError(f"{plan.lock!r:.80} is not the lock of {plan.kernel!r:.80}")
        return _typed(_Pending, {"id": record["id"], "plan": plan, "added": added, "mac": record.get("mac", "")})
    except (ValueError, KeyError, TypeError) as error:
        raise state.unreadable(history.git, PENDING, error) from error


def _typed(kind: type[T], fields: dict[str, Any]) -> T:
    """A value whose fields are of their types. Raises TypeError."""
    made = kind(**fields)
    for name, wanted in typing.get_type_hints(kind).items():
        if not isinstance(getattr(made, name), wanted):
            raise TypeError(f"{name} is {getattr(made, name)!r:.80}")
    return made
