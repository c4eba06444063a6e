"""What a round of the fuzz leaves: counts, and what must not have happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round of one area."""

    area: str
    seed: int
    steps: int
    """Random operations compared, or files read."""
    cases: int = 1
    """Programs, operations or readers."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """How often each answer was given that is no difference: ``equal``, ``undefined``, ``refused``…"""
    differences: tuple[str, ...] = ()
    """What must not have happened, in words."""


def added(rounds: Iterable[Round]) -> list[dict[str, object]]:
    """One line for each area: the sums over its rounds."""
    lines: dict[str, dict[str, object]] = {}
    for one in rounds:
        line = lines.setdefault(one.area, {"area": one.area, "cases": 0, "steps": 0, "differences": 0})
        counts = {"cases": one.cases, "steps": one.steps, "differences": len(one.differences), **one.outcomes}
        for name, count in counts.items():
            line[name] = int(str(line.get(name, 0))) + count
    return list(lines.values())
