"""Compares outputs with the exact reference, against what honest arithmetic may lose. Pure numpy.

Every element has two scales of its own, and neither is a tolerance that somebody chose: ``h``, half a unit in the last
place of the exact value in the output's dtype, and its loss ``s``, the standard deviation of what all roundings before
that add up to (``ratchet.candidate.rounding``). Rounding the exact value costs at most ``h``; what an answer is off
beyond that is its *excess*, and that is what its arithmetic lost before the last rounding.

======== =============================================================================================
element  an error of ``2 h + ELEMENT s``
side     an excess of ``SIDE h + ELEMENT s``: of one element that is rounded to the wrong side
row      an excess of ``ROW (s + GUARD h)`` in root mean square, over the last axis and over every slice
whole    an excess of ``WHOLE (s + GUARD h)`` in root mean square
gain     a common factor: ``GAIN s + COMMON h`` per element, and ``DRAW`` times what chance makes of it
======== =============================================================================================

Where inputs are so alike that all elements of a row are off by the same, a row is one draw and not many: rows and whole
are then allowed ``ALIKE`` times as much, and sides and factors say nothing.

So the exact value rounded once reaches half of the limit, in any problem. What rounds twice to the output's dtype does
not pass, unless the reference rounds there too: its loss holds that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ratchet.values.status import Status

Array = np.ndarray[Any, Any]

ELEMENT = 16.0
"""Losses that one element may be off. Of millions of draws of a normal distribution none is further than six; the rest
is for a kernel whose formula has two or three roundings for each one of the reference."""
ROW = 4.0
WHOLE = 2.0
ALIKE = 2.0
GUARD = 1 / 64
"""What a kernel may lose before its last rounding is at least that of six more bits than the output has."""
SINGLE = 2.0**-23
"""What an element below half of its row's magnitude may lose, as a share of that: a unit of float32 on the way, as
in ``1 + erf(x)`` where the reference has ``erfc(-x)``, or in ``log(1 + exp(-x))``."""
SIDE = 8 * GUARD
GAIN = 1.5
COMMON = 1 / 16
"""A common factor of all elements may be off by so many ``h``: four more bits."""
DRAW = 4.0
ENOUGH = 4096
"""Elements from which a common factor can be told from chance."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How one output compares. ``worst`` is the largest error over its allowance: 1.0 is the limit."""

    status: Status
    worst: float
    rms: float
    """Error in root mean square over the reference's."""
    floor_rms: float
    """What the precision costs, likewise: the loss and one rounding of the output."""
    message: str
    criterion: str = ""


def is_float(dtype: Any) -> bool:
    """Whether a numpy dtype holds floats, the extended ones included."""
    return np.dtype(dtype).name.startswith(("bfloat", "float"))


def row_rms(array: Array) -> Array:
    """Root mean square over the last axis, kept as an axis of length 1."""
    return np.sqrt(np.mean(np.square(array), axis=-1, keepdims=True)) if array.ndim else np.abs(array)


def half_unit(exact: Array, dtype: Any) -> Array:
    """Half a unit in the last place of ``exact`` in ``dtype``, float64; 0 for integers.

    Below the smallest normal number it is half of that: TPUs and CPUs flush what is smaller to zero.
    """
    if not is_float(dtype):
        return np.zeros(exact.shape)
    info = ml_dtypes.finfo(dtype)
    sized = np.isfinite(exact) & (exact != 0)  # else frexp says 0, as of one half
    _, exponent = np.frexp(np.where(sized, exact, float(info.tiny)))
    return np.maximum(np.ldexp(1.0, exponent - 2 - info.nmant), float(info.tiny) / 2)


def rounded(exact: Array, dtype: Any) -> Array:
    """``exact`` rounded once, as ``dtype``. Narrow ones go through a float32 rounded to odd."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.dtype(dtype).itemsize >= 4:
            return exact.astype(dtype)
        narrow = np.atleast_1d(exact.astype(np.float32))
        back = narrow.astype(np.float64)
        narrow = np.where(np.abs(back) > np.abs(exact), np.nextafter(narrow, np.float32(0)), narrow)
        odd = np.isfinite(exact) & (narrow.astype(np.float64) != exact)
        sticky = (narrow.view(np.int32) | odd.astype(np.int32)).view(np.float32)
        return sticky.reshape(exact.shape).astype(dtype)


def compare(got: Array, exact: Array, loss: Array, *, alike: bool = False) -> Comparison:
    """Compare one output. Elements where the reference itself is not finite have only to be not finite as well.

    Args:
      got: The answer, in the problem's dtype.
      exact: The reference in float64 (integers and booleans as they are).
      loss: Per element, float64: see ``rounding.Value``. Infinite where nothing is asked.
      alike: Whether the inputs make all elements of a row be off by the same.
    """
    if not exact.size:
        return Comparison(status=Status.PASS, worst=0.0, rms=0.0, floor_rms=0.0, message="it has no elements")
    wide, exact = got.astype(np.float64), exact.astype(np.float64)
    finite = np.isfinite(exact)
    bad = finite & ~np.isfinite(wide) & np.isfinite(loss)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        return Comparison(
            status=Status.NOT_FINITE,
            worst=np.inf,
            rms=np.inf,
            floor_rms=0.0,
            message=f"{int(bad.sum())} of {bad.size} elements are {wide[where]} where the reference is finite, "
            f"the first at {list(where)}",
            criterion="finite",
        )
    asked = finite & np.isfinite(loss)
    clean = np.where(asked, exact, 0.0)
    error = np.where(asked, np.abs(np.where(asked, wide, 0.0) - clean), 0.0)
    error = np.where(~finite & np.isfinite(wide) & np.isfinite(loss), np.inf, error)
    s, h = np.where(asked, loss, 0.0), half_unit(clean, got.dtype)
    ratios = _integers(error, s) if not is_float(got.dtype) else _floats(got, clean, error, s, h, alike=alike)
    worst = max(ratio for ratio, _ in ratios.values())
    # One element that is off is said before what it does to its row.
    local = ratios.get("element", (0.0, ()))[0] > 1
    criterion = "element" if local else max(ratios, key=lambda name: ratios[name][0])
    times, place = ratios[criterion]
    magnitude = float(np.sqrt(np.mean(clean**2))) + np.finfo(np.float64).tiny
    rms = float(np.sqrt(np.mean(error**2))) / magnitude
    floor_rms = float(np.sqrt(np.mean(np.square(s) + np.square(h) / 3))) / magnitude
    return Comparison(
        status=Status.PASS if worst <= 1.0 else Status.WRONG_VALUES,
        worst=worst,
        rms=rms,
        floor_rms=floor_rms,
        criterion=criterion,
        message=_message(criterion, times, place, (wide, exact, s, h), (rms, floor_rms)),
    )


Ratios = dict[str, tuple[float, tuple[int, ...]]]
"""Per criterion: the error over its allowance, and the element to name."""


def _at(array: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(array)), array.shape))


def _integers(error: Array, s: Array) -> Ratios:
    """An integer is right, or off by as much as a rounding before it decides."""
    times = np.divide(error, s, out=np.full(error.shape, np.inf), where=s >= 0.5)
    over = np.where(error > np.floor(s + 0.5), times, 0.0)
    return {"integer": (float(over.max()), _at(over))}


def _floats(got: Array, exact: Array, error: Array, own: Array, h: Array, *, alike: bool) -> Ratios:
    magnitude = row_rms(exact)
    s = np.where(2 * np.abs(exact) < magnitude, np.maximum(own, SINGLE * magnitude), own)
    elements, beyond = error / (2 * h + ELEMENT * s), np.maximum(error - h, 0.0)
    excess, granted = np.square(beyond / (s + GUARD * h)), ALIKE if alike else 1.0
    found: Ratios = {"element": (float(elements.max()), _at(elements))}
    axes = tuple(range(error.ndim))
    groups = {"row": axes[-1:]} | {f"slice of axis {k}": tuple(a for a in axes if a != k) for k in axes[:-1]}
    for name, over in groups.items():
        count = np.prod([error.shape[axis] for axis in over])
        limit = np.hypot(granted * ROW, ELEMENT / np.sqrt(count))
        means = np.sqrt(np.mean(excess, axis=over, keepdims=True)) / limit
        found[name] = (float(means.max()), _worst_of(excess, means))
    mean = float(np.sqrt(np.mean(excess)))
    found["whole"] = (mean / np.hypot(granted * WHOLE, ELEMENT / np.sqrt(error.size)), _at(excess))
    if alike:
        return found
    sides = beyond / (SIDE * h + ELEMENT * s)
    found["side"] = (float(sides.max()), _at(sides))
    found |= _gains(got, exact, s, h)
    return found


def _worst_of(excess: Array, means: Array) -> tuple[int, ...]:
    """The worst element of the worst group."""
    return _at(np.where(means == means.max(), excess, -np.inf))


def _gains(got: Array, exact: Array, s: Array, h: Array) -> Ratios:
    """A common factor of the whole and of every slice: what is off from the rounded exact value, along that.

    Each element is measured by its own rounding and loss, so that small ones say as much as large ones. Equal ones are
    rounded alike and say it once. A rounding whose tie a loss decides says nothing, and is left out.
    """
    if exact.size < ENOUGH:
        return {}
    apart = got.astype(np.float64) - rounded(exact, got.dtype).astype(np.float64)
    apart = np.where(np.isfinite(apart), apart, 0.0)
    apart = np.where((np.abs(got.astype(np.float64) - exact) <= h + 4 * s) & (s < h / 8), 0.0, apart)
    weight, share = exact / np.maximum(np.square(h) + np.square(s), 1e-300), 1 / _equal(exact)
    along, granted = apart * weight, (GAIN * s + COMMON * h) * np.abs(weight)
    chance, along, granted = share * np.square(along), share * along, share * granted
    found: Ratios = {}
    axes = tuple(range(exact.ndim))
    groups = {"gain": axes} | {f"gain of axis {k}": tuple(a for a in axes if a != k) for k in axes}
    for name, over in groups.items():
        if np.prod([exact.shape[axis] for axis in over]) < ENOUGH:
            continue
        limit = np.sum(granted, axis=over, keepdims=True) + DRAW * np.sqrt(np.sum(chance, axis=over, keepdims=True))
        ratio = np.abs(np.sum(along, axis=over, keepdims=True)) / (limit + np.finfo(np.float64).tiny)
        found[name] = (float(ratio.max()), _worst_of(np.abs(along), ratio))
    return found


def _equal(exact: Array) -> Array:
    """How many elements are equal to each one, where a sample of them holds any that are."""
    sample = exact.ravel()[:: max(1, exact.size // ENOUGH)]
    if np.unique(sample).size == sample.size:
        return np.ones(exact.shape)
    _, which, count = np.unique(exact, return_inverse=True, return_counts=True)
    return np.asarray(count[which].reshape(exact.shape), np.float64)


_SAID = {
    "element": "one element is off",
    "side": "one element is rounded to the wrong side",
    "row": "a row is off as a whole",
    "whole": "the output is off as a whole",
    "gain": "the output is off by a common factor",
    "integer": "an integer is wrong",
}


def _message(
    criterion: str, worst: float, place: tuple[int, ...], arrays: tuple[Array, ...], costs: tuple[float, float]
) -> str:
    wide, exact, s, h = (float(array[place]) for array in arrays)
    kind, _, axis = criterion.partition(" of axis ")
    said = _SAID.get(criterion) or (
        f"the slice at {place[int(axis)]} of axis {axis} is off "
        + ("as a whole" if kind == "slice" else "by a common factor")
    )
    times = f"{worst:.3g} times" if np.isfinite(worst) else "beyond all of"
    return (
        f"{said}, {times} what is allowed; {list(place)}: got {_digits(wide, exact)}, wanted {_digits(exact, wide)}, "
        f"where the loss is {s:.3g} and a rounding {h:.3g} (error {costs[0]:.2e} of the reference in root mean square, "
        f"its precision costs {costs[1]:.2e})"
    )


def _digits(value: float, other: float) -> str:
    """As many digits as it takes to tell the two apart, at least six."""
    if value == other:
        return f"{value:.6g}"
    apart = (digits for digits in range(6, 17) if f"{value:.{digits}g}" != f"{other:.{digits}g}")
    return f"{value:.{next(apart, 17)}g}"


MARGIN = 2.0
"""The native reference has to reach no more than the limit over this."""
WIDEST = 8.0
OVERFLOWN = 0.5
OTHERS = 0.001
"""Shares of the elements of which nothing is asked: where the native reference overflows, or has another integer."""


def fitted(native: Array, exact: Array, loss: Array, *, alike: bool = False) -> tuple[Array, float]:
    """The loss with which the native reference passes with a margin, and how much larger it had to be made.

    That is 1.0 where the analysis holds. It is for operations whose implementation loses more than a rounding or two.
    """
    with np.errstate(invalid="ignore"):
        wide, exact = native.astype(np.float64), exact.astype(np.float64)
        odd = ~np.isfinite(wide) & np.isfinite(exact)
        if not is_float(native.dtype):
            odd = np.abs(wide - exact) > np.floor(loss + 0.5)
    if odd.size and odd.mean() > (OVERFLOWN if is_float(native.dtype) else OTHERS):
        return loss, np.inf
    loss, times = np.where(odd, np.inf, loss), 1.0
    for _ in range(4):
        reached = compare(native, exact, loss * times, alike=alike).worst * MARGIN
        if reached <= 1.0:
            break
        times *= max(reached, 1.1)
    return loss * times, times


def stable(native: Array, exact: Array, loss: Array, *, alike: bool = False) -> Array:
    """The loss, infinite in each row in which the native reference is further off than the judge can explain.

    For inputs that are not the problem's own, on which a reference may do what it likes. What is left is fitted; where
    that, too, is further off, nothing is asked at all.
    """
    nothing = np.full(loss.shape, np.inf)
    if not is_float(native.dtype) or not native.ndim:
        return nothing
    with np.errstate(invalid="ignore", over="ignore"):
        wide, finite = native.astype(np.float64), np.isfinite(exact)
        limit = (2 * half_unit(np.where(finite, exact, 0.0), native.dtype) + ELEMENT * loss) * WIDEST / MARGIN
        odd = finite & ~(np.abs(wide - exact) <= limit)
    kept = ~odd.any(axis=-1)
    if not kept.any():
        return nothing
    left, times = fitted(native[kept], exact[kept], loss[kept], alike=alike)
    if times <= WIDEST:
        nothing[kept] = left
    return nothing


def insensitive(
    before: Array,
    after: Array,
    exact_before: Array,
    exact_after: Array,
    loss: Array,
) -> int:
    """Rows that do not move although the reference moves by far more than its precision."""
    if not is_float(before.dtype):
        return 0
    with np.errstate(invalid="ignore"):
        wanted = row_rms(np.nan_to_num(exact_after - exact_before, posinf=0.0, neginf=0.0))
        moved = row_rms(np.nan_to_num(after.astype(np.float64) - before.astype(np.float64), posinf=0.0, neginf=0.0))
        floor = row_rms(np.nan_to_num(np.hypot(loss, half_unit(exact_after, after.dtype)), posinf=0.0))
    return int(np.sum((wanted > 80 * floor) & (moved < 0.1 * wanted)))
