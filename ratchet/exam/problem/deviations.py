"""By how much each row of an output is off, in the scales of ``parity.py``. Pure numpy.

A row is what lies along the last axis. Rows are taken some at a time, as many as the processor's cache holds: a pass
over whole arrays of millions of elements waits for memory in every step of the arithmetic.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

CHUNK = 1 << 15
"""Elements at a time."""
ELEMENT = 16.0
"""Losses that one element may be off. Of millions of draws of a normal distribution none is further than six; the rest
is for a kernel whose formula has two or three roundings for each one of the reference."""
GUARD = 1 / 64
"""What a kernel may lose before its last rounding is at least that of six more bits than the output has."""
SINGLE = 2.0**-23
"""What an element below half of its row's magnitude may lose, as a share of that: a unit of float32 on the way, as
in ``1 + erf(x)`` where the reference has ``erfc(-x)``, or in ``log(1 + exp(-x))``."""
SIDE = 8 * GUARD
"""What one element may lose before its last rounding, in ``h``: an eighth. A factor of 1.0004 behind a bfloat16 gelu,
which has few distinct values, moves the exact value to the other side of ties that are further away."""
GAIN = 1.5
"""Losses that all elements may be off in one direction: one, as where all share a factor that is rounded, and half of
one for a formula with more roundings than the reference's (``python -m benchmarks.margins`` prints what passes)."""
COMMON = 1 / 16
"""A common factor of all elements may be off by so many ``h``: four more bits."""
_EXPONENT = np.int64(0x7FF0000000000000)
"""The bits of a float64 that hold its exponent: alone they are the power of two at or below its magnitude."""


def is_float(dtype: Any) -> bool:
    """Whether a numpy dtype holds floats, the extended ones included."""
    return np.dtype(dtype).name.startswith(("bfloat", "float"))


def row_rms(array: Array) -> Array:
    """Root mean square over the last axis, kept as an axis of length 1."""
    return np.sqrt(np.mean(np.square(array), axis=-1, keepdims=True)) if array.ndim else np.abs(array)


def half_unit(exact: Array, dtype: Any) -> Array:
    """Half a unit in the last place of ``exact`` in ``dtype``, float64; 0 for integers.

    Below the smallest normal number it is half of that: TPUs and CPUs flush what is smaller to zero. So it is for what
    is not finite.
    """
    if not is_float(dtype):
        return np.zeros(exact.shape)
    info = ml_dtypes.finfo(dtype)
    half = _power(exact) * 0.5 ** (info.nmant + 1)
    return np.maximum(np.where(np.isfinite(half), half, 0.0), float(info.tiny) / 2)


def rounded(exact: Array, dtype: Any) -> Array:
    """``exact`` (float64) rounded once, to the nearest even, as ``dtype``."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.isfinite(exact), _nearest(exact, dtype), exact).astype(dtype)


def _nearest(exact: Array, dtype: Any) -> Array:
    """Finite numbers rounded as by ``rounded``, still as float64. Integers stay as they are."""
    if not is_float(dtype) or np.dtype(dtype).itemsize >= 8:
        return exact
    info = ml_dtypes.finfo(dtype)
    # What is added leaves as many digits as the dtype has: those behind are rounded away, and it is taken off again.
    digits = 1.5 * 2.0 ** (52 - info.nmant) * np.maximum(_power(exact), float(info.tiny))
    near = (exact + digits) - digits
    return np.where(np.abs(near) <= float(info.max), near, np.copysign(np.inf, exact))


def _power(exact: Array) -> Array:
    """The power of two at or below the magnitude of each element; 0 below float64's own range, infinite for NaN."""
    bits = np.atleast_1d(np.ascontiguousarray(exact)).view(np.int64) & _EXPONENT
    return bits.view(np.float64).reshape(exact.shape)


@dataclass(frozen=True, kw_only=True)
class Elements:
    """What is asked of some rows, and what they are off by: per element, float64[rows, columns]."""

    got: Array
    """0 where nothing is asked."""
    exact: Array
    error: Array
    s: Array
    """The loss."""
    h: Array
    """Half a unit in the last place of the exact value in the output's dtype."""

    @classmethod
    def of(cls, got: Array, exact: Array, loss: Array) -> Elements:
        """Where the reference is not finite, an answer has only to be not finite as well."""
        wide = got.astype(np.float64)
        exact, loss = (array.astype(np.float64, copy=False) for array in (exact, loss))
        finite, some = np.isfinite(exact), np.isfinite(loss)
        asked = finite & some
        if asked.all():
            clean, given, s = exact, wide, loss
        else:
            clean, given, s = (np.where(asked, array, 0.0) for array in (exact, wide, loss))
        error = np.abs(given - clean)
        if not finite.all():
            error = np.where(~finite & np.isfinite(wide) & some, np.inf, error)
        return cls(got=given, exact=clean, error=error, s=s, h=half_unit(clean, got.dtype))

    @functools.cached_property
    def least(self) -> Array:
        """The loss, and of what is small in its row at least that of the row. Of whole rows."""
        return _least(self, row_rms(self.exact))


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """Of elements, against what each is allowed: float64[rows, columns]."""

    element: Array
    excess: Array
    """The square of what is beyond a rounding, over the loss and a 64th of a rounding."""
    side: Array


def ratios(of: Elements) -> Ratios:
    """What floats are off by, for each criterion that looks at single elements."""
    s = of.least
    beyond = np.maximum(of.error - of.h, 0.0)
    return Ratios(
        element=of.error / (2 * of.h + ELEMENT * s),
        excess=np.square(beyond / (s + GUARD * of.h)),
        side=beyond / (SIDE * of.h + ELEMENT * s),
    )


def _least(of: Elements, magnitude: Array) -> Array:
    return np.where(2 * np.abs(of.exact) < magnitude, np.maximum(of.s, SINGLE * magnitude), of.s)


def factors(of: Elements, dtype: Any, share: Array, magnitude: Array | None = None) -> tuple[Array, ...]:
    """What elements say of a common factor: along it, what is granted, and the square of what is chance.

    It is what is off from the rounded exact value, along that. Each element is measured by its own rounding and loss,
    so that small ones say as much as large ones. Equal ones are rounded alike and say it once, by ``share``. A rounding
    whose tie a loss decides says nothing, and is left out.

    Args:
      magnitude: Of each element's row, where ``of`` holds no whole rows.
    """
    s, h = of.least if magnitude is None else _least(of, magnitude), of.h
    with np.errstate(invalid="ignore"):
        apart = of.got - _nearest(of.exact, dtype)
        counts = np.isfinite(apart) & ~((np.abs(of.got - of.exact) <= h + 4 * s) & (s < h / 8))
    weight = of.exact / np.maximum(np.square(h) + np.square(s), 1e-300)
    along = np.where(counts, apart, 0.0) * weight
    granted = (GAIN * s + COMMON * h) * np.abs(weight)
    return share * along, share * granted, share * np.square(along)


@dataclass(frozen=True, kw_only=True)
class PerRow:
    """Sums over each row and largest elements of each, float64[rows]."""

    exact: Array
    """Sums of squares, as ``error`` and ``cost``."""
    error: Array
    cost: Array
    """Of the loss and of one rounding: what the precision costs."""
    integer: Array
    """The largest, as ``element``, ``side``, ``excess`` and ``steepest``. What a dtype does not have is 0."""
    element: Array
    side: Array
    excess: Array
    total: Array
    """The sum of the excesses."""
    along: Array
    granted: Array
    chance: Array
    steepest: Array
    """Of what is along a common factor, the largest magnitude."""


def measured(got: Array, exact: Array, loss: Array, share: Array | None) -> tuple[PerRow, Array]:
    """All rows of [rows, columns] arrays, and what ``factors`` says of each column: float64[3, columns].

    Args:
      share: As in ``factors``; None if nobody asks for a common factor.
    """
    dtype, columns = got.dtype, np.zeros((3, exact.shape[1]))
    parts: list[dict[str, Array]] = []
    for rows in chunks(exact.shape):
        of = Elements.of(got[rows], exact[rows], loss[rows])
        size = of.exact.shape[0]
        part = {field.name: np.zeros(size) for field in fields(PerRow)}
        part["exact"] = np.sum(np.square(of.exact), axis=1)
        part["error"] = np.sum(np.square(of.error), axis=1)
        part["cost"] = np.sum(np.square(of.s) + np.square(of.h) / 3, axis=1)
        if not is_float(dtype):
            part["integer"] = integers(of).max(axis=1)
        else:
            each = ratios(of)
            part["element"], part["side"] = each.element.max(axis=1), each.side.max(axis=1)
            part["excess"], part["total"] = each.excess.max(axis=1), each.excess.sum(axis=1)
            if share is not None:
                found = factors(of, dtype, share[rows])
                part |= zip(("along", "granted", "chance"), (one.sum(axis=1) for one in found), strict=True)
                part["steepest"] = np.abs(found[0]).max(axis=1)
                columns += [one.sum(axis=0) for one in found]
        parts.append(part)
    return PerRow(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]}), columns


def integers(of: Elements) -> Array:
    """An integer is right, or off by as much as a rounding before it decides."""
    times = np.divide(of.error, of.s, out=np.full(of.error.shape, np.inf), where=of.s >= 0.5)
    return np.where(of.error > np.floor(of.s + 0.5), times, 0.0)


def chunks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Rows of [rows, columns], as many at a time as make ``CHUNK`` elements, and one at least."""
    step = max(1, CHUNK // max(1, shape[1]))
    return (slice(start, start + step) for start in range(0, shape[0], step))
