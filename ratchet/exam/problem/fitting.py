"""Losses with which the reference in its own dtypes passes, where its operations lose more than a rounding or two.

Pure numpy.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ratchet.exam.problem.deviations import ELEMENT, half_unit, is_float
from ratchet.exam.problem.parity import compare, counted

Array = np.ndarray[Any, Any]

MARGIN = 2.0
"""The native reference has to reach no more than the limit over this: the exact value rounded once does, in any problem
(``parity.py``)."""
WIDEST = 8.0
"""How much larger a loss may be made: what loses three bits more than the analysis says is not stable in its dtypes."""
OVERFLOWN, OTHERS = 0.5, 0.001
"""Shares of the elements of which nothing may have to be asked: half where the native reference overflows, so that most
of an output is left; one in a thousand where it has another integer, as where a rounding decides a tie."""
FITS = 4
"""Steps of a fit, each by what is too much: a loss that decides fits at once, one beside roundings in a few."""


_WIDE = 1e38
"""The largest number of a dtype that has the range of float32, about: of others answers may well be near to theirs."""


def fitted(native: Array, exact: Array, loss: Array, *, alike: bool = False) -> tuple[Array, float, Array]:
    """The loss with which the native reference passes with a margin, how much larger it is, and what ``counted`` says.

    It is 1.0 times as large where the analysis holds.
    """
    if is_float(native.dtype):
        odd = np.isfinite(exact) & (~np.isfinite(native) | _is_at_the_end(exact, native.dtype))
    else:
        with np.errstate(invalid="ignore"):
            odd = np.abs(native.astype(np.float64) - exact.astype(np.float64)) > np.floor(loss + 0.5)
    if odd.size and odd.mean() > (OVERFLOWN if is_float(native.dtype) else OTHERS):
        return loss, np.inf, np.zeros(0, np.uint32)
    loss, times = np.where(odd, np.inf, loss) if odd.any() else loss, 1.0
    counts = counted(exact, loss, native.dtype, alike=alike)
    for _ in range(FITS if odd.size else 0):
        reached = compare(native, exact, loss * times, alike=alike, counts=counts).worst * MARGIN
        if reached <= 1.0:
            break
        times *= max(reached, 1.1)
    return loss * times, times, counts


def _is_at_the_end(exact: Array, dtype: Any) -> Array:
    """Where a sum in another order, or the upper part of a number in two, may overflow: two bits from its end."""
    most = float(ml_dtypes.finfo(dtype).max)
    with np.errstate(invalid="ignore"):
        return np.abs(exact) > most / 4 if most > _WIDE else np.zeros(exact.shape, bool)


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
        clean = np.where(finite, exact, 0.0).astype(np.float64)
        limit = (2 * half_unit(clean, native.dtype) + ELEMENT * loss) * WIDEST / MARGIN
        odd = finite & ~(np.abs(wide - exact) <= limit)
    kept = ~odd.any(axis=-1)
    if not kept.any():
        return nothing
    left, times, _ = fitted(native[kept], exact[kept], loss[kept], alike=alike)
    if times <= WIDEST:
        nothing[kept] = left
    return nothing
