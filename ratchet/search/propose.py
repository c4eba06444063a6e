"""Which points to try next: from the space and what was tried, values in, values out.

The same history gives the same proposals, on any machine and however often the search was interrupted: nothing is
kept between two calls, and what is drawn at random follows from the number of points that were tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ratchet.search import tpe
from ratchet.search.space import Key, Observation, Space, best
from ratchet.tune.fit import Directions, needs_at_most
from ratchet.values import Literal, Point
from ratchet.values.status import Status

_SLOPE = 0.05
"""From this growth of VMEM over a whole axis on, as a power of two, a knob has a direction."""


def directions(space: Space, observations: Sequence[Observation]) -> Directions:
    """The direction of every knob; 0 where none is known."""
    known = [one for one in observations if one.vmem_bytes and one.status is not Status.VMEM_OVERFLOW]
    signs = dict.fromkeys((axis.name for axis in space.axes), 0)
    numbers = [axis for axis in space.axes if axis.ordered and len(axis.values) > 1]
    if not numbers or len(known) < 2 * len(numbers) + 2:
        return signs
    places = [[1.0, *(axis.index(one.point[axis.name]) / (len(axis.values) - 1) for axis in numbers)] for one in known]
    sizes = [math.log2(one.vmem_bytes or 1) for one in known]
    slopes = np.linalg.lstsq(np.array(places), np.array(sizes), rcond=None)[0][1:]
    for axis, slope in zip(numbers, slopes, strict=True):
        signs[axis.name] = 0 if abs(slope) < _SLOPE else (1 if slope > 0 else -1)
    return _consistent(signs, observations)


def ruled_out_by(point: Point, observations: Sequence[Observation], known: Directions) -> Observation | None:
    """A point that overflowed and needs no more than ``point``, by the assumption."""
    overflows = (one for one in observations if one.status is Status.VMEM_OVERFLOW)
    return next((one for one in overflows if needs_at_most(one.point, point, known)), None)


def _consistent(signs: dict[str, int], observations: Sequence[Observation]) -> Directions:
    """Without the directions that a pair of tried points contradicts."""
    needs = [(one.point, need) for one in observations if (need := _need(one)) is not None]
    for (small, less), (large, more) in itertools.permutations(needs, 2):
        if less > more and needs_at_most(small, large, signs):
            for name in small:
                if small[name] != large[name]:
                    signs[name] = 0
    return signs


def _need(one: Observation) -> float | None:
    return math.inf if one.status is Status.VMEM_OVERFLOW else one.vmem_bytes


@dataclass(frozen=True, kw_only=True)
class Known:
    """The space, less what was tried and what need not be."""

    space: Space
    start: Point
    """Where the search began."""
    observations: tuple[Observation, ...]
    """Every point so far, in order."""

    @cached_property
    def _seen(self) -> frozenset[Key]:
        return frozenset(self.space.key(one.point) for one in self.observations)

    @cached_property
    def _directions(self) -> Directions:
        return directions(self.space, self.observations)

    def open(self, point: Point) -> bool:
        """Whether it is worth a trial."""
        return self.space.key(point) not in self._seen and self.space.allows(point) and not self.overflows(point)

    def overflows(self, point: Point) -> bool:
        """Whether another overflowed that needs no more VMEM than this one, by what is known."""
        return ruled_out_by(point, self.observations, self._directions) is not None

    def left_out(self) -> int:
        """Points of the space that are not worth a trial because of that."""
        seen = self._seen
        return sum(self.overflows(one) for one in self.space.points() if self.space.key(one) not in seen)


def propose(how: str, known: Known, count: int) -> tuple[Point, ...]:
    """Up to ``count`` points that were not tried yet; fewer where nothing else is left.

    ``how`` is a name of ``STRATEGIES``. The first point of all is the start, where the space has it.
    """
    begin = [known.start] if not known.observations else []
    chosen: dict[Key, Point] = {}
    for point in itertools.chain(begin, STRATEGIES[how].points(known)):
        if known.open(point):
            chosen.setdefault(known.space.key(point), point)
        if len(chosen) == count:
            break
    return tuple(chosen.values())


def grid(known: Known) -> Iterator[Point]:
    """Every point, the last knob turning fastest."""
    return known.space.points()


def neighbours(known: Known) -> Iterator[Point]:
    """One knob of the best point a step further, then two at once: changes that lose alone may win together.

    Pairs come in the order of what their halves lost alone. Where the best point has no such neighbours left, that is
    a point that no change of one or two knobs betters, and the walk ends.
    """
    top = best(known.observations)
    here = top.point if top else known.start
    singles = [(axis.name, value) for axis in known.space.axes for value in axis.near(here[axis.name])]
    alone = [{**here, name: value} for name, value in singles]
    yield from alone
    if any(map(known.open, alone)):
        return  # what they lose decides which pairs come first
    at = {known.space.key(one.point): one.latency_ms for one in known.observations}

    def lost(change: tuple[str, Literal]) -> float:
        latency = at.get(known.space.key({**here, change[0]: change[1]}))
        return latency if latency is not None else math.inf

    pairs = [pair for pair in itertools.combinations(singles, 2) if pair[0][0] != pair[1][0]]
    for pair in sorted(pairs, key=lambda pair: lost(pair[0]) + lost(pair[1])):
        yield {**here, **dict(pair)}


def by_tpe(known: Known) -> Iterator[Point]:
    """Three points of Optuna's estimator for each neighbour of the best, while there are any; then the grid.

    The estimator looks at each knob by itself, which learns fastest from few trials. Pairs are the neighbours' part.
    """
    estimated = tpe.points(known.space, known.observations, known.open)
    near = filter(known.open, neighbours(known))
    while points := [*itertools.islice(estimated, 3), *itertools.islice(near, 1)]:
        yield from points
    yield from grid(known)


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One way to choose points."""

    points: Callable[[Known], Iterator[Point]]
    """In the order in which they are to be tried; those that need no trial may be among them."""
    help: str
    """For the command line."""


STRATEGIES: Mapping[str, Strategy] = {
    "grid": Strategy(points=grid, help="every point"),
    "tpe": Strategy(points=by_tpe, help="by Optuna's estimator"),
    "neighbours": Strategy(points=neighbours, help="one or two knobs of the best point a step further"),
}
"""By the name that ``--how`` takes."""
DEFAULT = "tpe"
