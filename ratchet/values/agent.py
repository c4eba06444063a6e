"""A command-line agent's turns: how each ended, and when a run stops."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ratchet.values.row import Decision


class Ending(Enum):
    """How the command of one turn ended, and what became of its proposal."""

    JUDGED = "judged"
    """It left another kernel, which has a row in the ledger."""
    REPEATED = "repeated"
    """The kernel that it left was judged before: the ledger has its row already."""
    NOTHING = "nothing proposed"
    """It left the kernel as it was."""
    CRASHED = "crashed"
    """It failed and left the kernel as it was."""
    TIMED_OUT = "timed out"
    """It was ended at its time limit; what it left is not judged."""
    TRESPASS = "changed other files"
    """It changed more than the kernel file in its tree; what it left is not judged."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of an agent's."""

    number: int
    ending: Ending
    seconds: float
    """Of the command, without the verdict."""
    exit_code: int | None
    """Of the command, negative for a signal; None where it was ended at its time limit."""
    note: str = ""
    """The message of the experiment, or what was wrong: untrusted text."""
    id: str = ""
    """Of the experiment that has the row; ``""`` where there is none."""
    status: str = ""
    decision: str = ""
    why: str = ""
    """The cause of the decision, as the last line of an experiment gives it."""

    @property
    def kept(self) -> bool:
        return self.decision == Decision.KEPT


@dataclass(frozen=True, kw_only=True)
class Rules:
    """When to stop."""

    budget: int
    """Turns in all, those without a proposal too."""
    plateau: int
    """Judged proposals in a row of which none was kept."""
    repeats: int
    """Turns in a row that proposed nothing new."""
    failures: int
    """Turns in a row whose command crashed, hung or changed other files."""


class Stop(Enum):
    """Why a run ended."""

    BUDGET = "the budget of turns is spent"
    PLATEAU = "a plateau: none of the last proposals was better"
    REPEATS = "nothing new is proposed any more"
    FAILURES = "the command fails again and again"
