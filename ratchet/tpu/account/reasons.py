"""All of a run's time by what it goes to: from regions to reasons that sum to its cycles. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ratchet.values.blame import LineCost, RegionCost
from ratchet.values.place import Place
from ratchet.values.reason import Reason, Use

_WAITS = {"first": Use.FIRST, "last": Use.LAST}
"""Uses of waiting, by the name of a kernel's region."""
_Key = tuple[Use, str, Place | None]


def reasons(regions: Sequence[RegionCost]) -> tuple[Reason, ...]:
    """Largest first; their cycles are those of the regions."""
    spent: dict[_Key, Counter[Place]] = {}
    for region in regions:
        for line in region.lines:
            for use, unit, cycles in _uses(region, line):
                alone = line.place if use is Use.OUTSIDE else None
                spent.setdefault((use, unit, alone), Counter())[line.place] += cycles
    made = [
        Reason(use=use, unit=unit, cycles=places.total(), place=max(places, key=lambda place: places[place]))
        for (use, unit, _), places in spent.items()
        if places.total()
    ]
    return tuple(sorted(made, key=lambda one: -one.cycles))


def _uses(region: RegionCost, line: LineCost) -> Iterator[tuple[Use, str, int]]:
    if not region.kernel:
        yield Use.OUTSIDE, "", line.cycles
        return
    yield from ((Use.ISSUE, unit, cycles) for unit, cycles in line.issue_cycles.items())
    yield from ((Use.EMPTY, unit, cycles) for unit, cycles in line.stall_cycles.items())
    yield _WAITS.get(region.name, Use.WAIT), "", line.wait_cycles - line.link_wait_cycles
    yield Use.LINKS, "", line.link_wait_cycles
    yield Use.DELAY, "", line.delay_cycles
