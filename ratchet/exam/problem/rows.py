"""Which rows of an output are compared in float64, where there are many that have nothing to do with each other.

Losses take most of the time of a first verdict, and there are hundreds of rows of each kind of values. Of the problem's
own inputs one row in ``OWN_SHARE`` is compared in float64, for these show best what is off by little everywhere; of
inputs with a structure on top one in ``SHARE``. All others are compared with the reference in its own dtypes, and what
stands out is compared in float64, too: where an element, or a row in root mean square, is further from it than what
rows beside it are allowed, as shares of their size.

Pure numpy. The rows follow from the judge's secret.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratchet.exam.problem import deviations
from ratchet.exam.problem.input_regions import edges
from ratchet.exam.problem.problem import Problem

Array = np.ndarray[Any, Any]

SHARE, OWN_SHARE, LEAST = 8, 4, 8
"""Of a region one row in so many is known in float64, or of the problem's own inputs; and so many rows at least."""
FEWEST = 2048
"""Rows from which on only some of them are: a region has 32 then at least."""
BESIDE = 4
"""Known rows on either side whose allowance counts: where values are spiked, one row loses more than the next."""
APART = 2.0
"""Losses and roundings, in root mean square, that a row may be from the reference in its own dtypes: two honest answers
whose losses have nothing to do with each other are the root of two apart."""


def length(problem: Problem) -> int:
    """How many rows the outputs of a problem have; 0 where they cannot be evaluated alone."""
    return problem.outputs[0].shape[problem.rows.axes[0]] if problem.rows else 0


def are_sampled(problem: Problem) -> bool:
    """Whether only some rows of an instance are compared in float64 in any case."""
    return length(problem) >= FEWEST


def file_name(problem: Problem, kind: str, *, whole: bool) -> str:
    """Of the references of an instance among those that are kept; ``whole``: of all rows."""
    return f"{kind}.whole" if whole and are_sampled(problem) else kind


def sampled(length: int, generator: np.random.Generator, share: int = SHARE) -> Array:
    """Numbers of the rows of each region that are known in float64, its ends among them: int32, in order.

    From a generator in the same state those of a larger ``share`` are among those of a smaller one.
    """
    found: list[int] = []
    for a, b in itertools.pairwise(edges(length).tolist()):
        if b - a <= LEAST:  # the last one may be short
            found += range(a, b)
        else:
            inner = generator.permutation(np.arange(a + 1, b - 1))[: max(-(-(b - a) // share), LEAST) - 2]
            found += [a, *np.sort(inner), b - 1]
    return np.array(found, np.int32)


def axes(problem: Problem) -> tuple[int, ...]:
    """The axis of each output that its rows lie along."""
    return problem.rows.axes if problem.rows else (0,) * len(problem.outputs)


def of(problem: Problem, outputs: Sequence[Any], numbers: Array | None) -> list[Array]:
    """These rows of each output; None: all."""
    return [taken(np.asarray(array), numbers, axis) for axis, array in zip(axes(problem), outputs, strict=True)]


def taken(array: Array, rows: Array | None, axis: int) -> Array:
    """The rows of these numbers along ``axis``; None: all."""
    return array if rows is None else np.take(array, rows, axis)


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of one output."""

    rows: Array
    """Numbers of those that are known in float64, in order."""
    axis: int
    """That they lie along."""
    exact: Array
    loss: Array
    """Of those rows."""
    native: Array
    """Of all rows, what the reference in its own dtypes gives."""


def standing_out(got: Array, known: Known) -> Array:
    """Numbers of the rows that are to be compared in float64, too, in order.

    Where those that are known say nothing of others, these are all.
    """
    count = got.shape[known.axis]
    others = np.setdiff1d(np.arange(count), known.rows)
    given, native = (_by_rows(array, known.axis) for array in (got, known.native))
    if not deviations.is_float(got.dtype):
        return others[np.any(given[others] != native[others], axis=1)]
    size = _sizes(native)
    limits, asked = _allowed(known, size[known.rows], got.dtype)
    if not asked.any():
        return others
    places = np.searchsorted(known.rows[asked], others)
    beside = [np.clip(places + by, 0, int(asked.sum()) - 1) for by in range(-BESIDE, BESIDE)]
    limits = np.max([limits[asked][place] for place in beside], axis=0) * size[others]
    found = []
    for some in deviations.chunks((others.size, given.shape[1])):
        far = _apart(given[others[some]], native[others[some]])
        off = np.stack([far.max(axis=1), deviations.row_rms(far)[:, 0]], axis=1)
        found.append(others[some][(off > limits[some]).any(axis=1)])
    return np.concatenate(found) if found else others


def _by_rows(array: Array, axis: int) -> Array:
    """[rows, all else]."""
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _apart(got: Array, native: Array) -> Array:
    """How far elements are apart, float64; nothing is asked where the native reference is no finite number."""
    got, native = got.astype(np.float64), native.astype(np.float64)
    asked = np.isfinite(native)
    with np.errstate(invalid="ignore"):
        return np.where(asked, np.where(np.isfinite(got), np.abs(got - native), np.inf), 0.0)


def _sizes(native: Array) -> Array:
    """Of each row, float64[rows, 2]: its largest finite magnitude, and that in root mean square."""
    found = []
    for some in deviations.chunks(native.shape):
        size = np.abs(native[some].astype(np.float64))
        size = np.where(np.isfinite(size), size, 0.0)
        found.append(np.stack([size.max(axis=1), deviations.row_rms(size)[:, 0]], axis=1))
    return np.concatenate(found) + np.finfo(np.float64).tiny


def _allowed(known: Known, size: Array, dtype: Any) -> tuple[Array, Array]:
    """Of each known row, as shares of ``size``, what an element may be off and what the row may be.

    Also whether that says anything of others: not where it is more than the row itself, or where nothing is asked.
    """
    exact, loss = (_by_rows(array, known.axis).astype(np.float64) for array in (known.exact, known.loss))
    asked = np.isfinite(exact) & np.isfinite(loss)
    s, h = np.where(asked, loss, 0.0), deviations.half_unit(np.where(asked, exact, 0.0), dtype)
    count = asked.sum(axis=1)
    squares = np.sum(np.square(s) + np.square(h), axis=1, where=asked)
    element = np.max(2 * h + deviations.ELEMENT * s, axis=1, where=asked, initial=0.0)
    limits = np.stack([element, APART * np.sqrt(squares / np.maximum(count, 1))], axis=1)
    limits = limits / size
    return limits, (count > 0) & (limits < 1).all(axis=1)
