"""Stripes of an array along one axis, each of another structure, and sizes that are far from zero. Pure numpy.

Arrays are worked on some elements at a time, all stripes of a piece at once: a stripe along the last axis is two
elements of every row or so, and memory for a whole cache of keys costs more than what is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

STRIPES = 64
DOMINATING, TOWERING = 6.0, 40.0
"""A row that dominates its stripe; among large ones by so much that an exponential of the input itself overflows."""
LARGE = 5.0
"""Large enough that exp overflows without its maximum (logits of 100 and more), small enough that one rounding of the
inputs still leaves most of an answer: beyond that a reference decides nothing."""
TINY = 2.0**-10
APART = 2.0
"""Standard deviations between zero and the nearest of one sign: so few that a variance keeps most of its digits."""
_PIECE = 1 << 18
"""Elements that are worked on at a time."""


def is_float(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array holds floats, the extended ones included."""
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))


_AS_IT_IS, _LARGE, _TINY, _EQUAL, _INTEGERS, _ZERO = STRUCTURES = range(6)
"""What a stripe becomes. Integers are small and exact, none of them -0."""


@dataclass(frozen=True, kw_only=True)
class Structures:
    """What each place along an axis becomes: ``factor`` times what is at ``source``, or an integer or zero."""

    source: np.ndarray[Any, Any]
    factor: np.ndarray[Any, Any]
    is_integer: np.ndarray[Any, Any]
    is_zero: np.ndarray[Any, Any]

    @classmethod
    def drawn(cls, length: int, generator: np.random.Generator) -> Structures:
        """Stripes of all structures, with one dominating row in every stripe of several."""
        source, factor, kind = np.arange(length), np.ones(length, np.float32), np.zeros(length, int)
        edges = np.unique(np.linspace(0, length, STRIPES + 1).astype(int))
        chosen = generator.permutation(len(edges) - 1) % len(STRUCTURES)
        for structure, a, b in zip(chosen, edges, edges[1:], strict=False):
            dominating = a + generator.integers(0, b - a)
            kind[a:b] = structure
            factor[a:b] = {_LARGE: LARGE, _TINY: TINY}.get(structure, 1.0)
            if structure == _EQUAL:
                source[a:b] = a
            if b - a > 1:
                source[dominating], kind[dominating] = dominating, _AS_IT_IS
                factor[dominating] = TOWERING if structure == _LARGE else DOMINATING
        return cls(source=source, factor=factor, is_integer=kind == _INTEGERS, is_zero=kind == _ZERO)

    def write(self, array: np.ndarray[Any, Any], new: np.ndarray[Any, Any], axis: int) -> None:
        """Write what ``array`` becomes to ``new``."""
        places = np.arange(len(self.source))
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
                rounded = np.round(part_of * 2) + 0.0
                np.copyto(part_of, rounded, where=_along(self.is_integer[here], axis, array.ndim))
            if self.is_zero[here].any():
                np.copyto(part_of, np.float32(0), where=_along(self.is_zero[here], axis, array.ndim))
            new[some] = as_dtype(part_of, new.dtype)


class Sizes:
    """How large the elements of an input are, further from zero than there; written into ``new`` with a scale."""

    def __init__(self, array: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> None:
        self._array, self._new, self._apart = array, new, np.float32(0)
        if is_float(array):
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
