"""How a turn of the ratchet ended."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.values import Row, Verdict
from ratchet.values.status import Status


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a turn ended."""

    status: Status
    """Its exit code is the process's."""
    decision: str
    """A word of ``Decision``, or ``""`` where nothing was judged (NO_CHANGE)."""
    reason: str
    row: Row
    """The row of this turn; for NO_CHANGE the row that has the score already."""
    verdict: Verdict | None
    baseline: Row | None = None
    """The row of HEAD's kernel, where it had to be judged first in this turn."""
    incumbent: Row | None = None
    """The row that the candidate was compared with."""
    notes: tuple[str, ...] = ()
    """What else a user must know, beside what ``progress`` said already."""
