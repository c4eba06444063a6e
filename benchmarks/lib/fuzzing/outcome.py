"""What a round of the fuzz leaves: counts, and what must not have happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Something that must not have happened, with what repeats it."""

    area: str
    seed: int
    """Of the round."""
    what: str


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round of one area."""

    area: str
    cases: int
    """Programs, operations or damaged files."""
    steps: int
    """Random operations compared, or files read."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """How often each answer was given that is no difference: ``equal``, ``undefined``, ``refused``…"""
    differences: tuple[Difference, ...] = ()


def counted(outcomes: Iterable[str]) -> dict[str, int]:
    """How often each outcome occurs."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome] = counts.get(outcome, 0) + 1
    return counts


def added(rounds: Iterable[Round]) -> list[dict[str, object]]:
    """One line for each area: the sums over its rounds."""
    lines: dict[str, dict[str, object]] = {}
    for one in rounds:
        line = lines.setdefault(one.area, {"area": one.area, "cases": 0, "steps": 0, "differences": 0})
        counts = {"cases": one.cases, "steps": one.steps, "differences": len(one.differences), **one.outcomes}
        for name, count in counts.items():
            line[name] = int(str(line.get(name, 0))) + count
    return list(lines.values())
