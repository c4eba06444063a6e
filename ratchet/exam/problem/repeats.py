"""How often each number of an array is in it. Pure numpy.

A binary search for each of millions of elements waits for memory in every step. What is there more than once is few, so
it is kept in the order of a hash, and an element looks where its own hash begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

PIECE = 1 << 15
"""Elements that are looked up at a time."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4): the upper bits of a
product with it differ where any bits of the other factor do."""


def repeats(array: Array) -> Array:
    """float64 of the array's shape: to how many elements, itself among them, each is equal.

    Args:
      array: float64, without NaN. Both zeros are one number.
    """
    counts, flat = np.ones(array.shape), array.reshape(-1)
    ordered = np.sort(flat)
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), ordered.size - 1)
    times = np.diff(last, prepend=-1)
    several = times > 1
    if not ordered.size or not several.any():
        return counts
    table = _Table.of(ordered[last[several]] + 0.0, times[several])  # a zero of one sign
    into = counts.reshape(-1)
    for start in range(0, flat.size, PIECE):
        some = slice(start, start + PIECE)
        table.look_up(flat[some] + 0.0, into[some])
    return counts


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Numbers in the order of their slots, and where those begin. Behind the last are as many as a slot may hold."""

    numbers: Array
    times: Array
    starts: Array
    shift: np.uint64
    deepest: int
    """Numbers in one slot, at most."""

    @classmethod
    def of(cls, numbers: Array, times: Array) -> _Table:
        bits = numbers.size.bit_length() + 1
        shift = np.uint64(64 - bits)
        slots = _slots(numbers, shift)
        order = np.argsort(slots)
        held = np.bincount(slots, minlength=1 << bits)
        deepest = int(held.max())
        return cls(
            numbers=np.append(numbers[order], np.full(deepest, np.nan)),
            times=np.append(times[order].astype(np.float64), np.ones(deepest)),
            starts=(np.cumsum(held) - held).astype(np.int32),
            shift=shift,
            deepest=deepest,
        )

    def look_up(self, some: Array, into: Array) -> None:
        """Write into ``into`` how often each is there; what is not in the table stays."""
        at = self.starts[_slots(some, self.shift)]
        hit = self.numbers[at] == some
        into[hit] = self.times[at[hit]]
        places = np.flatnonzero(~hit)
        for depth in range(1, self.deepest):
            beyond = at[places] + depth
            hit = self.numbers[beyond] == some[places]
            into[places[hit]] = self.times[beyond[hit]]
            places = places[~hit]


def _slots(numbers: Array, shift: np.uint64) -> Array:
    return ((numbers.view(np.uint64) * _FACTOR) >> shift).astype(np.intp)
