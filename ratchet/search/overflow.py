"""Points that need not be compiled, because they need no less VMEM than one that overflowed. Pure.

The assumption is that of ``ratchet/tune/fit.py``: every knob that is a number has one direction in which a kernel never
needs less. The directions are fitted to the VMEM of the points that were tried, and a knob loses its direction where
one pair contradicts it. A knob without a direction is compared by equality.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ratchet.search.space import Space
from ratchet.search.tried import Tried
from ratchet.tune.fit import Directions, needs_at_most
from ratchet.values import Point
from ratchet.values.status import Status

_SLOPE = 0.05
"""From this growth of VMEM over a whole axis on, as a power of two, a knob has a direction."""


def directions(space: Space, tried: Sequence[Tried]) -> Directions:
    """The direction of every knob; 0 where none is known."""
    known = [one for one in tried if one.vmem_bytes and one.status is not Status.VMEM_OVERFLOW]
    signs = dict.fromkeys((axis.name for axis in space.axes), 0)
    numbers = [axis for axis in space.axes if axis.ordered and len(axis.values) > 1]
    if not numbers or len(known) < 2 * len(numbers) + 2:
        return signs
    places = [[1.0, *(axis.index(one.point[axis.name]) / (len(axis.values) - 1) for axis in numbers)] for one in known]
    sizes = [math.log2(one.vmem_bytes or 1) for one in known]
    slopes = np.linalg.lstsq(np.array(places), np.array(sizes), rcond=None)[0][1:]
    for axis, slope in zip(numbers, slopes, strict=True):
        signs[axis.name] = 0 if abs(slope) < _SLOPE else (1 if slope > 0 else -1)
    return _consistent(signs, tried)


def settled_by(point: Point, tried: Sequence[Tried], known: Directions) -> Tried | None:
    """A point that overflowed and needs no more than ``point``, by the assumption."""
    overflows = (one for one in tried if one.status is Status.VMEM_OVERFLOW)
    return next((one for one in overflows if needs_at_most(one.point, point, known)), None)


def _consistent(signs: dict[str, int], tried: Sequence[Tried]) -> Directions:
    """Without the directions that a pair of tried points contradicts."""
    needs = [(one.point, need) for one in tried if (need := _need(one)) is not None]
    for (small, less), (large, more) in itertools.permutations(needs, 2):
        if less > more and needs_at_most(small, large, signs):
            for name in small:
                if small[name] != large[name]:
                    signs[name] = 0
    return signs


def _need(one: Tried) -> float | None:
    return math.inf if one.status is Status.VMEM_OVERFLOW else one.vmem_bytes
