"""What is said of chips, or of the two cores of one, that wait for each other for ever. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ratchet.values.status import Refusal, Status

_MOST = 4
"""Places that a message names."""


@dataclass(frozen=True, kw_only=True)
class Stuck:
    """A chip or core in a wait that nothing ends."""

    number: int
    flag: int
    """The sync flag that it waits for."""
    waiting: str
    """Where it waits and for what, in words."""


@dataclass(frozen=True, kw_only=True)
class Signals:
    """Who signalled what during a run."""

    senders: dict[int, dict[int, set[int]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    """Per sync flag and chip that it was signalled at: which chips did."""
    own_copies: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Per sync flag: chips at which it signalled that a copy of their own had left."""


def refusal(kind: str, everyone: set[int], stuck: Sequence[Stuck], ended: set[int], signals: Signals) -> Refusal:
    """All wait or have ended, and nothing is under way: who waits for whom, and for what.

    Args:
        kind: ``chip`` or ``core``.
        everyone: all numbers.
        stuck: who waits for a sync flag.
        ended: who reached the end.
        signals: of the run until now.
    """

    def together(what: Callable[[Stuck], str]) -> list[tuple[str, str]]:
        """Who has the same said of it, and what."""
        who: dict[str, set[int]] = {}
        for one in stuck:
            who.setdefault(what(one), set()).add(one.number)
        return [(_called(kind, numbers), said) for said, numbers in who.items()]

    edges = [f"{who} for {what}" for who, what in together(lambda one: _awaited(kind, everyone, one, signals))]
    if ended:
        edges.append(f"{_called(kind, ended)} reached the end")
    waiting = together(lambda one: one.waiting + _so_far(kind, one, signals))
    places = [f"{who.capitalize()} {what}." for who, what in waiting[:_MOST]]
    if waiting[_MOST:]:
        places.append(f"So do others at {len(waiting) - _MOST} more places.")
    return Refusal(
        Status.DEADLOCK,
        f"the {kind}s wait for each other for ever: {'; '.join(edges)}. {' '.join(places)} "
        "Nothing is under way between them: look for a signal or a copy that not every one of them sends.",
    )


def _awaited(kind: str, everyone: set[int], one: Stuck, signals: Signals) -> str:
    """Who should have ended this wait, by what the others did."""
    at, leavers = signals.senders.get(one.flag, {}), signals.own_copies.get(one.flag, set())
    if leavers and one.number not in leavers:
        return f"a copy of its own that it never starts ({_called(kind, leavers)} did)"
    if not at:
        return "a signal that is never sent"
    silent = everyone - set().union(*at.values()) - {one.number}
    return _called(kind, silent, "or") if silent else f"more than {_called(kind, at.get(one.number, set()))} sent"


def _so_far(kind: str, one: Stuck, signals: Signals) -> str:
    at = sorted(signals.senders.get(one.flag, {}).items())
    sent = [f"at {_called(kind, {number})} by {_called(kind, by)}" for number, by in at]
    return f" (signalled so far {', '.join(sent)})" if sent else ""


def _called(kind: str, numbers: set[int], word: str = "and") -> str:
    """``chips 0, 1 and 2``."""
    *most, last = map(str, sorted(numbers)) if numbers else ("none",)
    return f"{kind}s {', '.join(most)} {word} {last}" if most else f"{kind} {last}"
