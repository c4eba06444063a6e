"""Compares outputs with the exact reference, against the floor that the problem's precision allows. Pure numpy.

The floor has three parts, none of them a tolerance that somebody chose: what plain XLA loses in the problem's own
dtypes, what one rounding of the inputs is worth, and one rounding of the output. A row (all but the
last axis) may be off by
``ROW`` times its own floor, one element by ``ELEMENT`` times it, and the whole array by ``WHOLE`` times in root
mean square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ratchet.values.status import Status

ROW = 4.0
ELEMENT = 16.0
WHOLE = 2.0
LUCKY = 0.01
MOST = 0.05
"""No row is granted more than this share of its size because of other rows."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How one output compares. ``worst`` is the largest error over its allowance: 1.0 is the limit."""

    status: Status
    worst: float
    rms: float
    """Error in root mean square over the reference's."""
    floor_rms: float
    """The floor likewise."""
    message: str


def row_rms(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Root mean square over the last axis, kept as an axis of length 1."""
    return np.sqrt(np.mean(np.square(array), axis=-1, keepdims=True)) if array.ndim else np.abs(array)


def floor_of(
    exact: np.ndarray[Any, Any], native: np.ndarray[Any, Any], nudged: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Row-wise floor of an output, float64, last axis of length 1.

    What a row loses to a rounding is a random draw, and where one large term decides the row it is a single draw for
    the whole row: it can be small by luck. So each row is granted at least what all but ``LUCKY`` of the rows of this
    output lose, in proportion to its size.

    Args:
      exact: The reference in float64.
      native: The reference in the problem's dtypes, on the same inputs.
      nudged: The same on inputs moved by as much as a rounding.
    """
    wide, moved = native.astype(np.float64), nudged.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        lost, sensitivity = row_rms(_finite(wide - exact)), row_rms(_finite(moved - wide))
    rounding = float(ml_dtypes.finfo(native.dtype).eps) if _is_float(native) else 0.0
    underflow = float(ml_dtypes.finfo(native.dtype).tiny) if _is_float(native) else 0.0
    magnitude = row_rms(_finite(exact))
    here = magnitude > underflow
    typical = np.quantile((np.hypot(lost, sensitivity))[here] / magnitude[here], 1 - LUCKY) if here.any() else 0.0
    least = np.minimum(typical, MOST) * magnitude
    return np.sqrt(np.maximum(lost**2 + sensitivity**2, least**2) + (rounding * magnitude / 2) ** 2) + underflow


def _finite(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0)


def _is_float(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))


def compare(got: np.ndarray[Any, Any], exact: np.ndarray[Any, Any], floor: np.ndarray[Any, Any]) -> Comparison:
    """Compare one output. Elements where the reference itself is not finite have only to be not finite as well."""
    wide = got.astype(np.float64)
    finite = np.isfinite(exact)
    bad = finite & ~np.isfinite(wide)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        return Comparison(
            status=Status.NOT_FINITE,
            worst=np.inf,
            rms=np.inf,
            floor_rms=0.0,
            message=f"{int(bad.sum())} of {bad.size} elements are {wide[where]} where the reference is finite, "
            f"the first at {list(where)}",
        )
    error = np.where(finite, np.abs(np.where(finite, wide, 0) - np.where(finite, exact, 0)), 0.0)
    error = np.where(~finite & np.isfinite(wide), np.inf, error)
    tiny = np.finfo(np.float64).tiny
    magnitude = float(np.sqrt(np.mean(np.where(finite, exact, 0) ** 2))) + tiny
    whole, whole_floor = float(np.sqrt(np.mean(error**2))), float(np.sqrt(np.mean(floor**2)))
    rows = row_rms(error) / (ROW * floor + tiny)
    elements = error / (ELEMENT * floor + tiny)
    worst = max(float(rows.max()), float(elements.max()), whole / (WHOLE * whole_floor + tiny))
    where = tuple(int(i) for i in np.unravel_index(int(np.argmax(elements)), error.shape))
    message = (
        f"error {whole / magnitude:.2e} of the reference in root mean square, plain XLA's floor is "
        f"{whole_floor / magnitude:.2e}; worst element {list(where)}: got {wide[where]:.6g}, wanted {exact[where]:.6g}"
    )
    return Comparison(
        status=Status.PASS if worst <= 1.0 else Status.WRONG_VALUES,
        worst=worst,
        rms=whole / magnitude,
        floor_rms=whole_floor / magnitude,
        message=message,
    )


def insensitive(
    before: np.ndarray[Any, Any],
    after: np.ndarray[Any, Any],
    exact_before: np.ndarray[Any, Any],
    exact_after: np.ndarray[Any, Any],
    floor: np.ndarray[Any, Any],
) -> int:
    """Rows that stand still although the reference moves by far more than its floor."""
    with np.errstate(invalid="ignore"):
        wanted = row_rms(np.nan_to_num(exact_after - exact_before))
        moved = row_rms(np.nan_to_num(after.astype(np.float64) - before.astype(np.float64)))
    return int(np.sum((wanted > 20 * ROW * floor) & (moved < 0.1 * wanted)))
