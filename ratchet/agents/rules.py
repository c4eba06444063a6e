"""When an agent's run ends, from its turns alone. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ratchet.values.agent import Ending, Rules, Stop, Turn

_NOTHING_NEW = (Ending.REPEATED, Ending.NOTHING)
_FAILED = (Ending.CRASHED, Ending.TIMED_OUT, Ending.TRESPASS)


def stop(turns: Sequence[Turn], rules: Rules) -> Stop | None:
    """Why no further turn is taken; None where one is."""
    if len(turns) >= rules.budget:
        return Stop.BUDGET
    judged = [turn for turn in turns if turn.ending is Ending.JUDGED]
    if _last(judged, lambda turn: not turn.kept) >= rules.plateau:
        return Stop.PLATEAU
    if _last(turns, lambda turn: turn.ending in _NOTHING_NEW) >= rules.repeats:
        return Stop.REPEATS
    if _last(turns, lambda turn: turn.ending in _FAILED) >= rules.failures:
        return Stop.FAILURES
    return None


def _last(turns: Sequence[Turn], wanted: Callable[[Turn], bool]) -> int:
    """How many of the last turns in a row are wanted ones."""
    return len(list(itertools.takewhile(wanted, reversed(turns))))
