"""Compares outputs with the exact reference, against what honest arithmetic may lose. Pure numpy.

Every element has two scales of its own, and neither is a tolerance that somebody chose: ``h``, half a unit in the last
place of the exact value in the output's dtype, and its loss ``s``, the standard deviation of what all roundings before
that add up to (``ratchet.exam.problem.rounding``). Rounding the exact value costs at most ``h``; what an answer is off
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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratchet.exam.problem import deviations
from ratchet.exam.problem.deviations import ELEMENT, Elements, PerRow, half_unit, is_float, row_rms
from ratchet.values.status import Status

Array = np.ndarray[Any, Any]

ROW = 4.0
"""Losses that a row may be off in root mean square. Its elements may share one draw, as the rounding of a sum: of a
normal distribution one in sixteen thousand is beyond four. The chance of few elements comes on top."""
WHOLE = 2.0
"""The same of an output, where draws average out: what is left is a formula that has two or three roundings for each
one of the reference (see ``ELEMENT``), the root of that in losses."""
ALIKE = 2.0
"""How much more that is where rows, and with them the whole output, are off together."""
DRAW = 4.0
"""Deviations of chance that a common factor may be: as for a row, since equal elements count once."""
ENOUGH = 4096
"""Elements from which a common factor can be told from chance: four deviations are then a 16th of what one element may
be off, as ``COMMON`` is."""
MOVED, FOLLOWED = 20 * ROW, 0.1
"""A row is asked to follow its reference where that moves by twenty times what a row may be off; a kernel that leaves
the row out follows by nothing, an honest one by nearly all of it, so a tenth tells them apart."""


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


@dataclass(frozen=True, kw_only=True)
class Part:
    """Which rows of an output are compared, where these are not all."""

    axis: int
    rows: Array
    """Their numbers along that axis."""
    picked: bool = False
    """Whether they were picked for what they are off by: then only elements and rows are asked, not what is common."""


def compare(
    got: Array,
    exact: Array,
    loss: Array,
    *,
    alike: bool = False,
    counts: Array | None = None,
    part: Part | None = None,
) -> Comparison:
    """Compare one output. Elements where the reference itself is not finite have only to be not finite as well.

    Args:
      got: The answer, in the problem's dtype.
      exact: The reference in float64 (integers and booleans as they are), or in float32 where the answer has 16 bits.
      loss: Per element, float64 or float32: see ``rounding.Value``. Infinite where nothing is asked.
      alike: Whether the inputs make all elements of a row be off by the same.
      counts: What ``counted`` says of the reference, if somebody kept it.
      part: What the arrays are of a whole output.
    """
    if not exact.size:
        return Comparison(status=Status.PASS, worst=0.0, rms=0.0, floor_rms=0.0, message="it has no elements")
    of = _Output.of(got, exact, loss, part=part)
    if (bad := of.not_finite()) is not None:
        count, where = bad
        return Comparison(
            status=Status.NOT_FINITE,
            worst=np.inf,
            rms=np.inf,
            floor_rms=0.0,
            message=f"{count} of {exact.size} elements are {float(got[where])} where the reference is finite, "
            f"the first at {of.named(where)}",
            criterion="finite",
        )
    share = of.share(counts, alike=alike)
    rows, columns = deviations.measured(of.got, of.exact, of.loss, share)
    found = _floats(of, rows, columns, share, alike=alike) if is_float(got.dtype) else _integers(of, rows)
    if part is not None and part.picked:
        found = {name: one for name, one in found.items() if name in _LOCAL}
    worst = max(ratio for ratio, _ in found.values())
    # One element that is off is said before what it does to its row.
    local = "element" in found and found["element"][0] > 1
    criterion = "element" if local else max(found, key=lambda name: found[name][0])
    times, place = found[criterion]
    magnitude = float(np.sqrt(rows.exact.sum() / exact.size)) + float(np.finfo(np.float64).tiny)
    rms = float(np.sqrt(rows.error.sum() / exact.size)) / magnitude
    floor_rms = float(np.sqrt(rows.cost.sum() / exact.size)) / magnitude
    return Comparison(
        status=Status.PASS if worst <= 1.0 else Status.WRONG_VALUES,
        worst=worst,
        rms=rms,
        floor_rms=floor_rms,
        criterion=criterion,
        message=_message(criterion, times, *place(), of, (rms, floor_rms)),
    )


def counted(exact: Array, loss: Array, dtype: Any, *, alike: bool = False) -> Array:
    """To how many elements of a reference each is equal, itself among them: uint32 of its shape.

    It is one element where a sample holds none that are equal, and none where a common factor cannot be told from
    chance. Of the loss it matters only where it is infinite. ``dtype`` is the answer's.
    """
    if not is_float(dtype) or alike or exact.size < ENOUGH:
        return np.zeros(0, np.uint32)
    every = slice(None, None, max(1, exact.size // ENOUGH))
    flat, lost = exact.reshape(-1), loss.reshape(-1)
    sample = np.where(np.isfinite(flat[every]) & np.isfinite(lost[every]), flat[every], 0.0)
    if np.unique(sample).size == sample.size:
        return np.ones(1, np.uint32)
    asked = np.where(np.isfinite(flat) & np.isfinite(lost), flat, 0.0).astype(np.float64, copy=False)
    return _repeats(asked).reshape(exact.shape)


def _repeats(numbers: Array) -> Array:
    """To how many of them each is equal, uint32. Few are there more than once, so that those are quickly looked up."""
    values, times = np.unique(numbers, return_counts=True)
    values, times = values[times > 1], times[times > 1]
    if not values.size:
        return np.ones(numbers.shape, np.uint32)
    at = np.minimum(np.searchsorted(values, numbers), values.size - 1)
    return np.where(values[at] == numbers, times[at], 1).astype(np.uint32)


def insensitive(before: Array, after: Array, exact_before: Array, exact_after: Array, loss: Array) -> int:
    """Rows that do not move although the reference moves by far more than its precision."""
    if not is_float(before.dtype) or not before.size:
        return 0
    arrays = (before, after, exact_before, exact_after, loss)
    before, after, exact_before, exact_after, loss = map(_as_rows, arrays)
    still = 0
    for rows in deviations.chunks(before.shape):
        with np.errstate(invalid="ignore"):
            a, b, exact_a, exact_b = (x[rows].astype(np.float64) for x in (before, after, exact_before, exact_after))
            each = exact_b - exact_a, b - a, np.hypot(loss[rows], half_unit(exact_b, after.dtype))
            finite = np.isfinite(a) & np.isfinite(b)  # what overflows moved
            wanted, moved, floor = (
                row_rms(np.nan_to_num(np.where(finite, x, 0.0), posinf=0.0, neginf=0.0)) for x in each
            )
        still += int(np.sum((wanted > MOVED * floor) & (moved < FOLLOWED * wanted)))
    return still


def _as_rows(array: Array) -> Array:
    """The last axis, and all before it."""
    return array.reshape(-1, *(array.shape[-1:] or (1,)))


@dataclass(frozen=True, kw_only=True)
class _Output:
    """One output as rows and columns: the last axis, and all before it."""

    shape: tuple[int, ...]
    got: Array
    exact: Array
    loss: Array
    part: Part | None = None

    @classmethod
    def of(cls, *arrays: Array, part: Part | None = None) -> _Output:
        got, exact, loss = map(_as_rows, arrays)
        return cls(shape=arrays[0].shape, got=got, exact=exact, loss=loss, part=part)

    @property
    def axes(self) -> tuple[int, ...]:
        """Those before the last."""
        return tuple(range(len(self.shape) - 1))

    def place(self, row: int, column: int) -> tuple[int, ...]:
        """The index of an element."""
        where = np.unravel_index(row * self.exact.shape[1] + column, self.shape)
        return tuple(map(int, where))

    def named(self, place: tuple[int, ...]) -> list[int]:
        """The index of an element in the whole output."""
        part = self.part
        return [int(part.rows[at]) if part and axis == part.axis else at for axis, at in enumerate(place)]

    def elements(self, rows: Any, columns: Any = slice(None)) -> Elements:
        """Some of them."""
        return Elements.of(*(array[rows, columns] for array in (self.got, self.exact, self.loss)))

    def not_finite(self) -> tuple[int, tuple[int, ...]] | None:
        """How many elements are not finite although they should be, and the first; None if all are as they should."""
        count, first = 0, None
        for rows in deviations.chunks(self.exact.shape):
            exact, got, loss = (array[rows] for array in (self.exact, self.got, self.loss))
            bad = np.isfinite(exact) & ~np.isfinite(got.astype(np.float64)) & np.isfinite(loss)
            if bad.any():
                count += int(bad.sum())
                row, column = (int(at[0]) for at in np.nonzero(bad))
                first = first or self.place(rows.start + row, column)
        return (count, first) if first is not None else None

    def share(self, counts: Array | None, *, alike: bool) -> Array | None:
        """One over how many elements are equal to each one; None where a common factor cannot be told from chance."""
        if counts is None:
            counts = counted(self.exact, self.loss, self.got.dtype, alike=alike)
        if counts.size <= 1:
            return np.broadcast_to(1.0, self.exact.shape) if counts.size else None
        return 1 / counts.reshape(self.exact.shape).astype(np.float64)


Place = Callable[[], tuple[int, int]]
"""Looks for the element to name: its row and column."""
Found = dict[str, tuple[float, Place]]
"""Per criterion: the error over its allowance, and the element to name."""


def _integers(of: _Output, rows: PerRow) -> Found:
    def place() -> tuple[int, int]:
        row = int(np.argmax(rows.integer))
        return row, int(np.argmax(deviations.integers(of.elements(slice(row, row + 1)))))

    return {"integer": (float(rows.integer.max()), place)}


def _floats(of: _Output, rows: PerRow, columns: Array, share: Array | None, *, alike: bool) -> Found:
    granted, (count, width) = ALIKE if alike else 1.0, of.exact.shape

    def worst(name: str, among: Array) -> Place:
        """The worst element of the row that is the worst of those in ``among``, a boolean for each row."""

        def place() -> tuple[int, int]:
            row = int(np.argmax(np.where(among, getattr(rows, name), -np.inf)))
            return row, int(np.argmax(getattr(deviations.ratios(of.elements(slice(row, row + 1))), name)))

        return place

    def limit(allowed: float, elements: float) -> float:
        return float(np.hypot(granted * allowed, ELEMENT / np.sqrt(elements)))

    everywhere = np.ones(count, bool)
    found: Found = {"element": (float(rows.element.max()), worst("element", everywhere))}
    means = np.sqrt(rows.total / width) / limit(ROW, width)
    found["row"] = (float(means.max()), worst("excess", means == means.max()))
    for axis in of.axes:
        others = of.exact.size / of.shape[axis]
        means = np.sqrt(_slices(of, rows.total, axis) / others) / limit(ROW, others)
        found[f"slice of axis {axis}"] = (float(np.max(means)), worst("excess", _rows_of(of, means)))
    mean = float(np.sqrt(rows.total.sum() / of.exact.size))
    found["whole"] = (mean / limit(WHOLE, of.exact.size), worst("excess", everywhere))
    if alike:
        return found
    found["side"] = (float(rows.side.max()), worst("side", everywhere))
    return found if share is None else found | _gains(of, rows, columns, share)


def _slices(of: _Output, per_row: Array, axis: int) -> Array:
    """Sums over each slice of an axis before the last, with as many axes as there are before it."""
    others = tuple(one for one in of.axes if one != axis)
    return np.asarray(per_row.reshape(of.shape[:-1]).sum(axis=others, keepdims=True))


def _rows_of(of: _Output, slices: Array) -> Array:
    """Which rows are in the worst of the slices."""
    return np.broadcast_to(slices == slices.max(), of.shape[:-1]).reshape(-1)


def _gains(of: _Output, rows: PerRow, columns: Array, share: Array) -> Found:
    """A common factor of the whole and of every slice that is large enough."""

    def ratio(along: Array, granted: Array, chance: Array) -> Array:
        return np.abs(along) / (granted + DRAW * np.sqrt(chance) + np.finfo(np.float64).tiny)

    def steepest(among: Array) -> Place:
        def place() -> tuple[int, int]:
            row = int(np.argmax(np.where(among, rows.steepest, -np.inf)))
            some = slice(row, row + 1)
            return row, int(np.argmax(np.abs(deviations.factors(of.elements(some), of.got.dtype, share[some])[0])))

        return place

    def in_column(column: int) -> Place:
        def place() -> tuple[int, int]:
            some = (slice(None), slice(column, column + 1))
            magnitude = np.sqrt(rows.exact / of.exact.shape[1])[:, None]
            along, *_ = deviations.factors(of.elements(*some), of.got.dtype, share[some], magnitude)
            return int(np.argmax(np.abs(along))), column

        return place

    three: Any = (rows.along, rows.granted, rows.chance)
    everywhere = np.ones(of.exact.shape[0], bool)
    found: Found = {"gain": (float(ratio(*(one.sum() for one in three))), steepest(everywhere))}
    for axis in of.axes:
        if of.exact.size // of.shape[axis] >= ENOUGH:
            slices = ratio(*(_slices(of, one, axis) for one in three))
            found[f"gain of axis {axis}"] = (float(slices.max()), steepest(_rows_of(of, slices)))
    if of.exact.shape[0] >= ENOUGH:
        each = ratio(*columns)
        found[f"gain of axis {len(of.axes)}"] = (float(each.max()), in_column(int(np.argmax(each))))
    return found


_LOCAL = ("element", "side", "row", "integer")
"""Criteria that look at one element or row alone."""
_SAID = {
    "element": "one element is off",
    "side": "one element is rounded to the wrong side",
    "row": "a row is off as a whole",
    "whole": "the output is off as a whole",
    "gain": "the output is off by a common factor",
    "integer": "an integer is wrong",
}


def _message(criterion: str, worst: float, row: int, column: int, of: _Output, costs: tuple[float, float]) -> str:
    place, one = of.named(of.place(row, column)), of.elements(slice(row, row + 1), slice(column, column + 1))
    wide, exact = (float(array[row, column]) for array in (of.got, of.exact))
    s, h = one.s.item(), one.h.item()
    kind, _, axis = criterion.partition(" of axis ")
    said = _SAID.get(criterion) or (
        f"the slice at {place[int(axis)]} of axis {axis} is off "
        + ("as a whole" if kind == "slice" else "by a common factor")
    )
    times = f"{worst:.3g} times" if np.isfinite(worst) else "beyond all of"
    return (
        f"{said}, {times} what is allowed; {place}: got {_digits(wide, exact)}, wanted {_digits(exact, wide)}, "
        f"where the loss is {s:.3g} and a rounding {h:.3g} (error {costs[0]:.2e} of the reference in root mean square, "
        f"its precision costs {costs[1]:.2e})"
    )


def _digits(value: float, other: float) -> str:
    """As many digits as it takes to tell the two apart, at least six."""
    if value == other:
        return f"{value:.6g}"
    apart = (digits for digits in range(6, 17) if f"{value:.{digits}g}" != f"{other:.{digits}g}")
    return f"{value:.{next(apart, 17)}g}"
