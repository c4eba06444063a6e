"""The inputs that a kernel is checked on: random, probed, mixed and signed. Pure numpy, given the random ones.

A problem is any function of arrays, so the structure is put on top of its own inputs in a way that needs no
knowledge of it: rows are scaled, repeated, rounded, spiked or of one sign. All that is known of the problem are the
axes along which it mixes elements: a spike belongs there, where a sum or a lookup has to notice it, and regions beside
them, where each answer is made of one structure; and what it orders or compares, of which many elements become equal.
Integer inputs (lengths, page tables) and booleans stay as generated, except matrices of narrow integers of both signs,
which are numbers, and integers of which it is known how they are drawn: these take values that could have been drawn,
too, the ends of their range and empty groups among them. Every choice follows from the judge's secret, except for what
steers a modelled run: that anyone may know, so a kernel is checked on it too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ratchet.exam.problem import draws
from ratchet.exam.problem.deviations import is_float
from ratchet.exam.problem.draws import Drawn
from ratchet.exam.problem.input_regions import DOMINATING, Sizes, Structures, as_dtype, cut, few_bits, pieces, stretches
from ratchet.exam.problem.problem import Problem
from ratchet.values import ArraySpec, Mesh

Axes = Sequence[Sequence[int]]
"""For each input the axes along which the problem mixes its elements."""

SIGNED = "signed"
"""The kind whose inputs make all elements of a row be off by the same: see ``parity``."""
SMALL = "small"
"""The kind in which all of an input is small."""
KINDS = ("random", "probe", "mixed", SIGNED, SMALL)
"""``random``: as generated, with what steers the modelled run. ``probe``: the same with a few spiked rows.
``mixed``: all structures at once, steered by secret ones. ``signed``: regions of one sign, far from zero.
``small``: of what one number is made, all small."""


def kinds(mesh: Mesh, axes: Axes = (), total: Axes = ()) -> tuple[str, ...]:
    """The instances of a problem. On several chips every chip has a probe of its own: ``probe-0``, ``probe-1``, …

    Where nothing is mixed no answer is a sum or an extreme, and there is none of one sign. Where none is one of all of
    an input, none is small.
    """
    places = [""] if mesh.chips == 1 else [f"-{place}" for place in range(mesh.chips)]
    only = {SIGNED: any(axes), SMALL: any(total)}
    asked = [kind for kind in KINDS if only.get(kind, True)]
    return tuple(kind + place for kind in asked for place in (places if kind == "probe" else [""]))


def kinds_of(problem: Problem) -> tuple[str, ...]:
    """The kinds of instances of a problem."""
    return kinds(problem.mesh, problem.mixed_axes, problem.total_axes)


def is_own(kind: str) -> bool:
    """Whether an instance holds the problem's own inputs, with no structure put on top."""
    return kind in ("random", "fresh", "public")


def is_probe(kind: str) -> bool:
    """Whether an instance is a probe, of whichever chip."""
    return kind.partition("-")[0] == "probe"


SCALARS = 1024
"""An input of float32 or narrow integers with at most so many elements may be scalars, by which a kernel branches."""
PROBED_ROWS = 4
SPIKE = 24.0
SMALL_NORM = 2.0**-10
"""Below what engineers clip to, or add so that nothing is divided by zero."""
NEAR_ZERO, FAR = 2.0, 64.0
"""Scales of regions of one sign: products of two such add up to some -200 in attention, where an exponential that is
taken without the maximum is zero or infinite; far ones are so without being multiplied."""


def steers(spec: ArraySpec) -> bool:
    """Whether an input may decide what a program does: lengths, page tables, group sizes, a few scalars."""
    if spec.dtype in ("int32", "uint32"):
        return True
    return spec.dtype.startswith(("float32", "int", "uint")) and math.prod(spec.shape) <= SCALARS


def steering(inputs: Sequence[ArraySpec]) -> list[int]:
    """Positions of the inputs that may steer. Where all could, none does: a kernel could know all of the modelled run's
    inputs, and with them the answer.
    """
    found = [number for number, spec in enumerate(inputs) if steers(spec)]
    return found if len(found) < len(inputs) else []


def spiked_axis(shape: Sequence[int], mixed: Sequence[int] = ()) -> int:
    """The axis to spike rows of: the longest of those that are mixed, else the longest."""
    return max(mixed or range(len(shape)), key=lambda axis: shape[axis])


def region_axis(shape: Sequence[int], mixed: Sequence[int] = ()) -> int:
    """The axis to cut into regions: the longest that is not mixed, where there is one, else the longest."""
    beside = [axis for axis in range(len(shape)) if axis not in mixed and shape[axis] > 1]
    return max(beside or range(len(shape)), key=lambda axis: shape[axis])


def probed_rows(length: int, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Rows to spike: one in each quarter, so that the far and the near end are both among them."""
    edges = np.linspace(0, length, PROBED_ROWS + 1).astype(int)
    return np.array([generator.integers(a, b) for a, b in itertools.pairwise(edges) if b > a])


def probe(
    inputs: Sequence[np.ndarray[Any, Any]],
    generator: np.random.Generator,
    mesh: Mesh | None = None,
    place: int = 0,
    axes: Axes = (),
    to_change: Sequence[np.ndarray[Any, Any]] = (),
) -> list[np.ndarray[Any, Any]]:
    """Each float input with ``PROBED_ROWS`` rows made large: whatever depends on them has to move.

    On several chips only what lies on the chip at ``place`` changes; arrays that all chips hold stay as they are,
    unless there are no others. ``to_change`` are the inputs once more, to be changed and not copied.
    """
    mesh = mesh or Mesh()
    parts = [mesh.part(number, array.shape, place) for number, array in enumerate(inputs)]
    split = [array[own].size < array.size for array, own in zip(inputs, parts, strict=True)]
    changed = []
    for number, (array, own, is_split) in enumerate(zip(inputs, parts, split, strict=True)):
        new, along = array, axes[number] if axes else ()
        if is_float(array.dtype) and array.ndim and array.size > 1 and (is_split or not any(split)):
            new = to_change[number] if to_change else np.array(array)
            view = np.moveaxis(new[own], spiked_axis(new[own].shape, along), 0)
            for row in probed_rows(len(view), generator):
                view[row] = as_dtype(np.asarray(view[row], np.float32) * SPIKE, new.dtype)
        changed.append(new)
    return changed


def mixed(
    inputs: Sequence[np.ndarray[Any, Any]],
    generator: np.random.Generator,
    axes: Axes = (),
    ordered: Sequence[Sequence[int] | None] = (),
    whole: Axes = (),
    drawn: Sequence[Drawn | None] = (),
) -> list[np.ndarray[Any, Any]]:
    """Each float input cut into regions of different structure, with one dominating row in every short region.

    Where regions are beside what is mixed, a few rows along that dominate as well; and along ``whole`` axes, where they
    are known, blocks of the others are zero, and of one input equal. What is ordered are numbers of few bits, so that
    those that are equal are so in any arithmetic; and where it is mixed as a whole, it is cut along an axis that is
    ordered, with rows that are equal to others.
    """
    changed, summed = [], [number for number, one in enumerate(whole) if one]
    equal = generator.choice(summed) if summed else None  # of two, all roundings of a block would be one
    for number, array in enumerate(inputs):
        along, order = axes[number] if axes else (), ordered[number] if ordered else None
        new, how = np.array(array), drawn[number] if drawn else None
        if how is not None and not is_of_both_signs(array):
            new = draws.extreme(array, how, generator)
        elif is_float(array.dtype) and array.ndim and array.size > 1:
            across = region_axis(new.shape, along)
            twins = across in along and any(new.shape[axis] > 1 for axis in order or ())
            across = max(order or (), key=lambda axis: new.shape[axis]) if twins else across
            old = array if order is None else few_bits(array)
            Structures.drawn(new.shape[across], generator, whole=bool(whole), twins=twins).write(old, new, across)
            if along and across not in along:
                spiked = spiked_axis(new.shape, along)
                view = np.moveaxis(new, spiked, 0)
                for first, end, is_zero in stretches(len(view), generator) if whole and spiked in whole[number] else ():
                    if is_zero or number == equal:
                        view[first:end] = 0 if is_zero else view[first]
                for place in probed_rows(len(view), generator):
                    view[place] = as_dtype(np.asarray(view[place], np.float32) * DOMINATING, new.dtype)
        changed.append(new)
    return changed


def signed(
    inputs: Sequence[np.ndarray[Any, Any]],
    generator: np.random.Generator,
    axes: Axes = (),
    drawn: Sequence[Drawn | None] = (),
) -> list[np.ndarray[Any, Any]]:
    """Each input that holds numbers of both signs cut into regions of one sign, near or far from zero, and a plain one.

    What is summed or compared is then all negative or all positive, and so are products of two inputs: an extreme that
    starts at zero shows, and a sum that is narrower than it has to be. An input without regions, because the problem
    mixes it along all axes, is of one sign as a whole: far if it is the only one, else the next one's is the opposite.
    The ends along what is mixed tower over the rest where they can: an extreme that leaves them out shows. Of integers
    that are groups the last one has all.
    """
    changed = [np.array(array) for array in inputs]
    for number, how in enumerate(drawn):
        if how is not None and not is_of_both_signs(changed[number]):
            changed[number] = draws.extreme(changed[number], how, generator, full=True)
    chosen = [number for number, array in enumerate(changed) if is_of_both_signs(array)]
    for turn, number in enumerate(chosen):
        new, along = changed[number], axes[number] if axes else ()
        sizes = Sizes(inputs[number], new)
        across, spiked = region_axis(new.shape, along), spiked_axis(new.shape, along)
        if any(new.shape[axis] > 1 for axis in set(range(new.ndim)) - set(along)):
            found = cut(new.shape[across], generator, long=_NEAR, short=_OTHERS)
            scales, towers = np.zeros(new.shape[across], np.float32), itertools.product(_TOWERS, _ENDS)
            for region in found:
                scales[region.first : region.end] = region.kind
            sizes.write_scaled(scales, across)
            plain = [region for region in found if not region.kind] if along else []
            for region, (scale, end) in zip(plain, itertools.cycle(towers), strict=False):
                sizes.write({across: slice(region.first, region.end), spiked: end}, scale)
        else:
            sign = 1 if turn % 2 else -1
            sizes.write({}, sign if len(chosen) > 1 else sign * FAR)
            for end in _ENDS if len(chosen) > 1 else ():
                sizes.write({spiked: end}, sign * NEAR_ZERO)
    return changed


def small(inputs: Sequence[np.ndarray[Any, Any]], total: Axes) -> list[np.ndarray[Any, Any]]:
    """Each float input of which one number is made so small that its norm is below ``SMALL_NORM``; others as they are.

    The regions of ``mixed`` are small beside others of their sum, and a norm of all is that of the largest. The scale
    is a power of two, so that elements keep their digits. Floats of eight bits have no room for it.
    """
    changed = list(inputs)
    for number, along in enumerate(total):
        array = inputs[number]
        if along and is_float(array.dtype) and array.dtype.itemsize > 1:
            norm = math.sqrt(sum(float(np.vdot(piece, piece)) for piece in pieces(array)))
            if 0 < norm < math.inf:
                scale = math.ldexp(SMALL_NORM, -math.frexp(norm)[1])
                changed[number] = as_dtype(np.asarray(array, np.float32) * np.float32(scale), array.dtype)
    return changed


_NEAR, _OTHERS = (NEAR_ZERO, -NEAR_ZERO), (FAR, -FAR, 0.0)
"""Scales of regions of one sign; 0: one that stays as it is, with one end that towers."""
_ENDS, _TOWERS = (slice(0, 1), slice(-1, None)), (FAR, -FAR)


def is_of_both_signs(array: np.ndarray[Any, Any]) -> bool:
    """Whether an input holds numbers that may have any sign: floats, or matrices of narrow integers.

    What has one sign may have to (a variance, a probability), and so may an integer: an index, a flag, -1 for none.
    """
    if is_float(array.dtype) and array.size > 1:
        ends = np.array([(piece.min(), piece.max()) for piece in pieces(array)])
        return bool(np.isfinite(ends).all() and ends.min() < 0 < ends.max())
    narrow = array.ndim > 1 and array.dtype.name in ("int4", "int8", "int16")
    return narrow and 0 < int(array.max()) < -2 * int(array.min())


def tables(inputs: Sequence[np.ndarray[Any, Any]], public: Sequence[np.ndarray[Any, Any]]) -> list[int]:
    """Positions of the float inputs that are the same for every key: tables, not data, and left as they are.

    A kernel may rely on how they are made (both halves of a rotary table are equal, say). Where all are, none is.
    """
    floats = [number for number, array in enumerate(inputs) if is_float(array.dtype)]
    same = [number for number in floats if inputs[number].tobytes() == public[number].tobytes()]
    return same if len(same) < len(floats) else []
