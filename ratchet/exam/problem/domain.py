"""Where the inputs of a problem may be: what keeps its reference defined, where generator and jaxpr both say so.

Structures are put on top of a problem's own inputs: rows are scaled, zero or of one sign. A reference need not have an
answer there, as ``log(-log(u))`` has none unless ``0 < u < 1``. So each float input has the loosest range in which no
operation leaves its domain (``ranges.py``) that stays inside of it for what the generator draws. An input that the
generator draws beyond such an operation's domain itself, or that reaches none, has none: it is made as before. What is
drawn in order, as the edges of bins are, stays in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np

from ratchet.exam.problem.deviations import is_float
from ratchet.exam.problem.input_regions import TINY, pieces
from ratchet.exam.problem.ranges import ANY, Range, faults

Domain = tuple[float | None, float | None]
"""The least and the largest that a made number may be; None: without end."""
Arrays = Sequence[np.ndarray[Any, Any]]

DRAWS, FEW_BYTES = 16, 1 << 22
"""Draws that say where a generator's numbers are, so many of inputs of at most so many bytes; of larger ones two."""
_LARGEST = 1 << 30
"""Bytes of inputs beyond which nothing is drawn to learn it, as drawing takes minutes and as much memory."""


def domains(
    function: Callable[..., Any], avals: Sequence[jax.ShapeDtypeStruct], draw: Callable[[np.ndarray[Any, Any]], Arrays]
) -> list[Domain | None]:
    """For each input of a reference where it has to stay; None: anywhere.

    Args:
      draw: The generator: inputs of these shapes and dtypes, of key data ``uint32[2]``. It is only called where an
        operation may leave its domain.
    """
    closed = jax.make_jaxpr(function)(*avals)
    if len(closed.in_avals) != len(avals) or not faults(closed, [ANY] * len(avals)):
        return [None] * len(avals)
    size = sum(math.prod(a.shape) * a.dtype.itemsize for a in avals)
    if size > _LARGEST:
        return [None] * len(avals)
    seen = drawn_ranges([draw(np.array([0, n], np.uint32)) for n in range(DRAWS if size <= FEW_BYTES else 2)])
    floats = [is_float(aval.dtype) for aval in avals]
    now = [one if is_of_floats else ANY for one, is_of_floats in zip(seen, floats, strict=True)]
    least = faults(closed, now)
    found: list[Domain | None] = []
    for number, aval in enumerate(avals):
        own = now[number]
        if own == ANY:
            found.append(None)
            continue
        for low in _lows(own):
            now[number] = own._replace(low=low)
            if faults(closed, now) <= least:
                break
        kept = now[number]
        for high in (-low for low in _lows(Range(-own.high, -own.low))):
            now[number] = kept._replace(high=high)
            if faults(closed, now) <= least:
                break
        found.append(_domain(now[number], own, aval.dtype))
    return found


def drawn_ranges(draws: Sequence[Arrays]) -> list[Range]:
    """The range of each input over some draws; any where one is not finite or empty."""
    found = []
    for arrays in zip(*draws, strict=True):
        ends = [(float(p.min()), float(p.max())) for array in arrays for p in (pieces(array) if array.size else ())]
        is_finite = bool(ends) and bool(np.isfinite(ends).all())
        found.append(Range(min(low for low, _ in ends), max(high for _, high in ends)) if is_finite else ANY)
    return found


def _lows(own: Range) -> Iterator[float]:
    """Where an input may begin, the loosest first. What has one sign keeps it in any case."""
    yield -math.inf if own.low < 0 else 0.0
    if own.low > 0:
        yield own.low * TINY
    yield own.low


def _domain(chosen: Range, own: Range, dtype: Any) -> Domain | None:
    """As it is kept: only the ends that an operation asks for, as numbers that the dtype has."""
    least = float(ml_dtypes.finfo(dtype).tiny)
    low = None if chosen.low in (-math.inf, 0.0) and chosen.low != own.low else chosen.low
    high = None if chosen.high in (math.inf, 0.0) and chosen.high != own.high else chosen.high
    if low is not None and 0 < low < least:
        low = least
    if high is not None and -least < high < 0:
        high = -least
    return None if low is None and high is None else (low, high)


def inside(arrays: Arrays, given: Sequence[Domain | None]) -> list[np.ndarray[Any, Any]]:
    """Inputs of an instance with what is outside of the domain at its nearest end: what was equal is equal then."""
    if not given:
        return list(arrays)
    return [array if one is None else _clipped(array, one) for array, one in zip(arrays, given, strict=True)]


ORDERED = 8
"""Elements from which an order is none by chance."""


def in_order(arrays: Arrays, drawn: Arrays) -> list[np.ndarray[Any, Any]]:
    """Inputs of an instance, sorted along each axis along which the drawn ones are: edges of bins, say, or times."""
    return [_sorted_as(array, own) for array, own in zip(arrays, drawn, strict=True)]


def _sorted_as(array: np.ndarray[Any, Any], own: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not is_float(own.dtype) or not own.size:
        return array
    for axis in range(own.ndim):
        lines = np.moveaxis(own, axis, -1)
        first = lines[(0,) * (own.ndim - 1)].astype(np.float32)
        for sign in (1, -1) if len(first) >= ORDERED else ():
            if (np.diff(sign * first) < 0).any():  # of most inputs this is all that is looked at
                continue
            wide = sign * lines.astype(np.float32)
            if (wide[..., 1:] >= wide[..., :-1]).all() and (wide[..., -1] > wide[..., 0]).all():
                made = sign * np.sort(sign * np.moveaxis(array, axis, -1).astype(np.float32), axis=-1)
                array = np.ascontiguousarray(np.moveaxis(made, -1, axis)).astype(own.dtype)
    return array


def _clipped(array: np.ndarray[Any, Any], domain: Domain) -> np.ndarray[Any, Any]:
    low, high = (None if end is None else np.float32(end) for end in domain)
    new = np.empty(array.size, array.dtype)
    start = 0
    for piece in pieces(array):
        new[start : start + piece.size] = np.clip(piece, low, high).astype(array.dtype)
        start += piece.size
    return new.reshape(array.shape)
