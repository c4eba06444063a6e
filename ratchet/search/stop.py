"""When a search ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ratchet.search.tried import Tried, since_best

PATIENCE_BY_KNOB = 10
"""So many trials for each knob without a better one are enough, where nothing else is asked for."""


class Ending(Enum):
    """Why a search ended."""

    BUDGET = "the budget of trials is used up"
    TIME = "the time is over"
    SPACE = "nothing is left to try"
    PATIENCE = "no better point for long"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a search may go on."""

    trials: int
    """At most so many points, those of an interrupted run counted."""
    seconds: float | None = None
    """Of this run; None for as long as it takes."""
    patience: int = 0
    """Trials without a better one after which it ends; 0 for no such rule."""


def ending(limits: Limits, tried: Sequence[Tried], seconds: float) -> Ending | None:
    """Why the search ends here, after ``seconds`` of this run; None where it goes on."""
    if len(tried) >= limits.trials:
        return Ending.BUDGET
    if limits.seconds is not None and seconds >= limits.seconds:
        return Ending.TIME
    if limits.patience and any(one.passed for one in tried) and since_best(tried) >= limits.patience:
        return Ending.PATIENCE
    return None
