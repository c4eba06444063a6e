"""Regions of an array along one axis, each of another structure, and sizes that are far from zero. Pure numpy.

A kernel works in blocks, and what it does with one may depend on its first row, or on all of it. So regions begin where
blocks do, at multiples of powers of two. Two are long, as blocks are, two more are half of that, and the others short.
What each becomes follows from the judge's secret, but those where blocks of any one size begin become all that there
is, if they are as many.

Arrays are worked on some elements at a time, all regions of a piece at once: a region along the last axis is two
elements of every row or so, and memory for a whole cache of keys costs more than what is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from ratchet.exam.problem.deviations import is_float

FEWEST = 8
"""Places of an axis that has long regions."""
LONG, SHORT = 4, 16
"""A long region is the largest power of two within this share of the axis, a short one this share of a long one."""
DOMINATING, TOWERING = 6.0, 40.0
"""A row that dominates its region; among large ones by so much that an exponential of the input itself overflows."""
LARGE = 5.0
"""Large enough that exp overflows without its maximum (logits of 100 and more), small enough that one rounding of the
inputs still leaves most of an answer: beyond that a reference decides nothing."""
TINY = 2.0**-10
APART = 2.0
"""Standard deviations between zero and the nearest of one sign: so few that a variance keeps most of its digits."""
_PIECE = 1 << 18
"""Elements that are worked on at a time."""

_AS_IT_IS, _LARGE, _TINY, _EQUAL, _INTEGERS, _ZERO = range(6)
"""What a region becomes. Integers are small and exact, none of them -0."""
_PADDING, _HALVES, _OTHERS = (_ZERO, _TINY), (_EQUAL, _INTEGERS), (_LARGE, _AS_IT_IS)
"""What a kernel may leave out where it finds a whole block of it, what it may take for one row or for narrow numbers,
and the rest."""


def edges(length: int, *, halves: bool = False) -> np.ndarray[Any, Any]:
    """Where regions begin along an axis, and its end. Of few places each is a short region.

    With ``halves`` each long region is followed by one that is half as long.
    """
    long, begins = _long(length)
    every = np.append(np.arange(0, length, max(1, long // SHORT)), length)
    whole = [(begin, begin + long) for begin in begins]
    whole += [(end, end + long // 2) for _, end in whole] if halves else []
    inside = [(every > begin) & (every < end) for begin, end in whole]
    return every[~np.any(inside, axis=0)] if inside else every


def _long(length: int) -> tuple[int, tuple[int, ...]]:
    """How long the long regions are, and where they begin: at the first place and in the middle."""
    if length < FEWEST:
        return 0, ()
    long = 1 << (length // LONG).bit_length() - 1
    return long, (0, length // 2 // long * long)


class Region(NamedTuple):
    """Places ``first`` to ``end`` along an axis, and what they become."""

    first: int
    end: int
    is_long: bool
    """Or half as long as a long one."""
    kind: Any


def cut(
    length: int,
    generator: np.random.Generator,
    *,
    long: Sequence[Any],
    half: Sequence[Any] = (),
    short: Sequence[Any],
) -> list[Region]:
    """The regions of an axis: long ones are of the kinds ``long``, those half as long of the kinds ``half``, short ones
    of all kinds in turn.

    Turns go by where larger and larger blocks begin, the largest first.
    """
    kinds = [some[place] for some in (long, half, short) for place in generator.permutation(len(some))]
    begins, ends = (found := edges(length, halves=bool(half)))[:-1], found[1:]
    size, starts = _long(length)
    is_first, is_half = np.isin(begins, starts), np.isin(begins, [start + size for start in starts] if half else [])
    is_long = is_first | is_half
    if is_long.any():
        aligned = np.where(begins == 0, length, begins & -begins)
        rank = np.where(is_first, 0, np.where(is_half, 1, 2))
        turns = np.argsort(np.lexsort((generator.random(len(begins)), -aligned, rank)))
    else:
        turns = generator.permutation(max(len(begins), len(kinds)))[: len(begins)]
    chosen = (kinds[turn % len(kinds)] for turn in turns)
    return [Region(*four) for four in zip(begins.tolist(), ends.tolist(), is_long.tolist(), chosen, strict=True)]


def stretches(length: int, generator: np.random.Generator) -> list[tuple[int, int, bool]]:
    """Whole blocks along an axis: where they begin and end, and whether they are to be zero, or else of equal places.

    Neither the first nor the last quarter or so is zero, but one in between, and half of the last.
    """
    long, _ = _long(length)
    if not long:
        return []
    count, half = length // long, long // 2
    zero, equal = (int(place) * long for place in 1 + generator.permutation(count - 2)[:2])
    last = length // half * half - half
    return [(zero, zero + long, True), (equal, equal + half, False), (last, length, True)]


@dataclass(frozen=True, kw_only=True)
class Structures:
    """What each place along an axis becomes: ``factor`` times what is at ``source``, or an integer or zero."""

    source: np.ndarray[Any, Any]
    factor: np.ndarray[Any, Any]
    is_integer: np.ndarray[Any, Any]
    is_zero: np.ndarray[Any, Any]
    whole: bool
    """Whether integers are multiples of a usual size, where that is less than 1."""

    @classmethod
    def drawn(
        cls, length: int, generator: np.random.Generator, *, whole: bool = False, twins: bool = False
    ) -> Structures:
        """Regions of all structures, with one dominating row in every short one of several, not its first.

        With ``whole`` those of equal rows and of integers are half as long as the long ones, else short. With ``twins``
        half of the places outside of long regions are copies of the others, wherever these are.
        """
        lone = list[int]()
        source, factor, kind = np.arange(length), np.ones(length, np.float32), np.zeros(length, int)
        half, short = (_HALVES, _OTHERS) if whole else ((), (_LARGE, *_HALVES, _AS_IT_IS))
        for first, end, is_long, structure in cut(length, generator, long=_PADDING, half=half, short=short):
            kind[first:end] = structure
            lone += [] if is_long else range(first, end)
            factor[first:end] = {_LARGE: LARGE, _TINY: TINY}.get(structure, 1.0)
            if structure == _EQUAL:
                source[first:end] = first
            if end - first > 1 and not is_long:
                dominating = generator.integers(first + 1, end)
                source[dominating], kind[dominating] = dominating, _AS_IT_IS
                factor[dominating] = TOWERING if structure == _LARGE else DOMINATING
        if twins:
            order = generator.permutation(lone)
            new, old = order[: len(order) // 2], order[len(order) // 2 : len(order) // 2 * 2]
            source[new], factor[new], kind[new] = source[old], factor[old], kind[old]
        return cls(source=source, factor=factor, is_integer=kind == _INTEGERS, is_zero=kind == _ZERO, whole=whole)

    def write(self, array: np.ndarray[Any, Any], new: np.ndarray[Any, Any], axis: int) -> None:
        """Write what ``array`` becomes to ``new``."""
        places, unit = np.arange(len(self.source)), np.float32(min(1.0, _power(array)) if self.whole else 1)
        for some in _places(array.shape):
            here = some[axis]
            part_of = np.array(array[some], np.float32)
            moved = np.flatnonzero(self.source[here] != places[here])
            if moved.size:
                of = self.source[here][moved]
                is_here = here.start <= of.min() and of.max() < here.stop  # and then it is in the cache
                taken = np.take(part_of, of - here.start, axis) if is_here else array[_at(some, axis, of)]
                part_of[_at((slice(None),) * array.ndim, axis, moved)] = taken
            part_of *= _along(self.factor[here], axis, array.ndim)
            if self.is_integer[here].any():
                rounded = np.round(part_of * (2 / unit)) * unit + np.float32(0)
                np.copyto(part_of, rounded, where=_along(self.is_integer[here], axis, array.ndim))
            if self.is_zero[here].any():
                np.copyto(part_of, np.float32(0), where=_along(self.is_zero[here], axis, array.ndim))
            new[some] = as_dtype(part_of, new.dtype)


def few_bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Multiples of half a usual size, none larger than what was there: a dozen different numbers, of which many are
    equal, and whose sums and products are exact in any order.
    """
    unit, new = np.float32(_power(array) / 2), np.array(array)
    for some in _places(array.shape):
        new[some] = as_dtype(np.trunc(np.asarray(array[some], np.float32) / unit) * unit + np.float32(0), new.dtype)
    return new


def _power(array: np.ndarray[Any, Any]) -> float:
    """The power of two nearest to the root mean square of an array, of a sample of it; 1 where that is no number."""
    sample = np.asarray(array.reshape(-1)[:: max(1, array.size // _PIECE)], np.float64)
    size = math.sqrt(float(np.mean(np.square(sample[np.isfinite(sample)])))) if np.isfinite(sample).any() else 0.0
    return float(2.0 ** round(math.log2(size))) if 2.0**-60 < size < 2.0**60 else 1.0


class Sizes:
    """How large the elements of an input are, further from zero than there; written into ``new`` with a scale."""

    def __init__(self, array: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> None:
        self._array, self._new, self._apart = array, new, np.float32(0)
        if is_float(array.dtype):
            self._high = float(ml_dtypes.finfo(array.dtype).max) / 2
            self._low = -self._high
            squares = sum(float(np.square(piece, dtype=np.float64).sum()) for piece in pieces(array))
            self._apart = np.float32(APART * math.sqrt(squares / array.size))
        else:
            self._low, self._high = float(array.min()), float(array.max())

    def write(self, where: Mapping[int, slice], scale: float) -> None:
        """Within what a number of the input may be: of floats half of their range, of integers what there is."""
        place = tuple(where.get(axis, slice(None)) for axis in range(self._array.ndim))
        array, new = self._array[place], self._new[place]
        for some in _places(array.shape):
            new[some] = self._scaled(array[some], np.float32(scale))

    def write_scaled(self, scales: np.ndarray[Any, Any], axis: int) -> None:
        """As ``write``, with a scale for each place along ``axis``; where that is zero, nothing is written."""
        for some in _places(self._array.shape):
            own = _along(scales[some[axis]], axis, self._array.ndim)
            if own.any():
                array = self._array[some]
                self._new[some] = np.where(own != 0, self._scaled(array, own), array)

    def _scaled(self, array: np.ndarray[Any, Any], scale: Any) -> np.ndarray[Any, Any]:
        sizes = np.array(array, np.float32)
        np.abs(sizes, out=sizes)
        sizes += self._apart
        sizes *= scale
        return np.clip(sizes, self._low, self._high, out=sizes).astype(array.dtype)


def pieces(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """All elements, as float32, some at a time: memory for a whole cache of keys costs more than what is computed."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        yield np.asarray(flat[start : start + _PIECE], np.float32)


def _places(shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Slices that make up an array of this shape, so small that what is computed of one stays in a cache."""
    axis = next((axis for axis, size in enumerate(shape) if size > 1), 0)
    inner = math.prod(shape[axis + 1 :])
    rows = _PIECE // max(1, inner)
    for start in range(0, shape[axis], max(1, rows)):
        here = (*(slice(0, 1),) * axis, slice(start, min(start + max(1, rows), shape[axis])))
        for rest in [()] if rows else _places(shape[axis + 1 :]):
            yield (*here, *(rest or (slice(0, size) for size in shape[axis + 1 :])))


def _at(place: tuple[slice, ...], axis: int, indices: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """``place`` with indices along ``axis``."""
    return (*place[:axis], indices, *place[axis + 1 :])


def _along(vector: np.ndarray[Any, Any], axis: int, rank: int) -> np.ndarray[Any, Any]:
    """A vector as an array that has its elements along ``axis``."""
    return vector.reshape([-1 if dimension == axis else 1 for dimension in range(rank)])


def as_dtype(values: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    """Floats in a dtype, where one of eight bits is too narrow for them as far as it goes."""
    most = float(ml_dtypes.finfo(dtype).max)
    if most < 1e3:
        values = np.where(np.isfinite(values), np.clip(values, -most, most), values)
    return values.astype(dtype)
