"""When the problem of a kernel file was frozen, and by which row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.values import Row
from ratchet.values.status import Status

_PASSED = {status.name for status in (Status.PASS, Status.NOT_BETTER, Status.CANNOT_TELL)}
"""Of rows whose kernel passed: a lock is written for no other."""


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A problem, and the row whose verdict froze it: the first of its kernel file that passed with it."""

    row: Row
    before: Row | None
    """The row that froze the problem which the same kernel file had before; None for its first."""

    @property
    def said(self) -> str:
        """In one sentence."""
        row, before = self.row, self.before
        text = f"problem {row.problem} of {row.kernel}: frozen by row {row.id} at {row.time}"
        return f"NEW {text}, in place of {before.problem} (row {before.id} at {before.time})" if before else text


def frozen(rows: Sequence[Row]) -> tuple[Frozen, ...]:
    """The problems that were frozen, oldest first; a kernel file that has another one again is there again."""
    now: dict[str, Frozen] = {}
    found = []
    for row in rows:
        last = now.get(row.kernel)
        if row.problem and row.status in _PASSED and (last is None or last.row.problem != row.problem):
            now[row.kernel] = Frozen(row=row, before=last.row if last else None)
            found.append(now[row.kernel])
    return tuple(found)


def current(rows: Sequence[Row]) -> tuple[Frozen, ...]:
    """The problem that each kernel file has now, those that took another's place first."""
    newest = {one.row.kernel: one for one in frozen(rows)}
    return tuple(sorted(newest.values(), key=lambda one: one.before is None))


def changed(rows: Sequence[Row], row: Row) -> str:
    """What a report says of ``row`` where it froze a problem in another's place; ``""`` where it did not."""
    known = [*rows] if row in rows else [*rows, row]
    return next((one.said for one in frozen(known) if one.row.id == row.id and one.before), "")
