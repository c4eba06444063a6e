"""The inputs that a kernel is checked on: random, probed and mixed. Pure numpy, given the problem's random inputs.

A problem is any function of arrays, so the structure is put on top of its own inputs in a way that needs no
knowledge of it: rows are scaled, repeated, rounded or spiked. All that is known of the problem are the axes along which
it mixes elements: a spike belongs there, where a sum or a lookup has to notice it, and stripes beside them, where each
answer is made of one structure. Integer inputs (lengths, page tables) and booleans stay as generated. Every choice
follows from the judge's secret, except for what steers a modelled run: that anyone may know, so a kernel is checked on
it too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401 (registers bfloat16 with numpy)
import numpy as np

from ratchet.candidate.mesh import part
from ratchet.values import ArraySpec, Mesh

KINDS = ("random", "probe", "mixed")
"""``random``: as generated, with what steers the modelled run. ``probe``: the same with a few spiked rows.
``mixed``: all structures at once, steered by secret ones."""


def kinds(mesh: Mesh) -> tuple[str, ...]:
    """The instances of a problem. On several chips every chip has a probe of its own: ``probe-0``, ``probe-1``, …"""
    if mesh.chips == 1:
        return KINDS
    return ("random", *(f"probe-{place}" for place in range(mesh.chips)), "mixed")


SCALARS = 1024
"""An input of float32 or narrow integers with at most so many elements may be scalars, by which a kernel branches."""
PROBED_ROWS = 4
STRIPES = 64
SPIKE = 24.0
DOMINATING, TOWERING = 6.0, 40.0
"""A row that dominates its stripe; among large ones by so much that an exponential of the input itself overflows."""
LARGE = 5.0
"""Large enough that exp overflows without its maximum (logits of 100 and more), small enough that one rounding of the
inputs still leaves most of an answer: beyond that a reference decides nothing."""
TINY = 2.0**-10


def steers(spec: ArraySpec) -> bool:
    """Whether an input may decide what a program does: lengths, page tables, group sizes, a few scalars."""
    if spec.dtype in ("int32", "uint32"):
        return True
    return spec.dtype.startswith(("float32", "int", "uint")) and math.prod(spec.shape) <= SCALARS


def is_float(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array holds floats, the extended ones included."""
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))


def steering(inputs: Sequence[ArraySpec]) -> list[int]:
    """Positions of the inputs that may steer. Where all could, none does: a kernel could know all of the modelled run's
    inputs, and with them the answer.
    """
    found = [number for number, spec in enumerate(inputs) if steers(spec)]
    return found if len(found) < len(inputs) else []


def steered(
    inputs: Sequence[np.ndarray[Any, Any]], public: Sequence[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """The inputs of a secret key, but what may steer as the public key has it, by which latency is modelled."""
    specs = [ArraySpec(shape=array.shape, dtype=array.dtype.name) for array in inputs]
    taken = steering(specs)
    return [public[number] if number in taken else array for number, array in enumerate(inputs)]


Axes = Sequence[Sequence[int]]
"""For each input the axes along which the problem mixes its elements."""


def spiked_axis(shape: Sequence[int], mixed: Sequence[int] = ()) -> int:
    """The axis to spike rows of: the longest of those that are mixed, else the longest."""
    return max(mixed or range(len(shape)), key=lambda axis: shape[axis])


def striped_axis(shape: Sequence[int], mixed: Sequence[int] = ()) -> int:
    """The axis to cut into stripes: the longest that is not mixed, where there is one, else the longest."""
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
) -> list[np.ndarray[Any, Any]]:
    """Each float input with ``PROBED_ROWS`` rows made large: whatever depends on them has to move.

    On several chips only what lies on the chip at ``place`` changes; arrays that all chips hold stay as they are,
    unless there are no others.
    """
    mesh = mesh or Mesh()
    parts = [part(mesh, number, array.shape, place) for number, array in enumerate(inputs)]
    split = [array[own].size < array.size for array, own in zip(inputs, parts, strict=True)]
    changed = []
    for number, (array, own, is_split) in enumerate(zip(inputs, parts, split, strict=True)):
        new, along = np.array(array), axes[number] if axes else ()
        if is_float(array) and array.ndim and array.size > 1 and (is_split or not any(split)):
            view = np.moveaxis(new[own], spiked_axis(new[own].shape, along), 0)
            for row in probed_rows(len(view), generator):
                view[row] = (np.asarray(view[row], np.float32) * SPIKE).astype(new.dtype)
        changed.append(new)
    return changed


def mixed(
    inputs: Sequence[np.ndarray[Any, Any]], generator: np.random.Generator, axes: Axes = ()
) -> list[np.ndarray[Any, Any]]:
    """Each float input cut into stripes of different structure, with one dominating row in every stripe.

    Where stripes are beside what is mixed, a few rows along that dominate as well.
    """
    changed = []
    for number, array in enumerate(inputs):
        new, along = np.array(array), axes[number] if axes else ()
        if is_float(array) and array.ndim and array.size > 1:
            stripes = striped_axis(new.shape, along)
            view = np.moveaxis(new, stripes, 0)
            edges = np.unique(np.linspace(0, len(view), STRIPES + 1).astype(int))
            structures = generator.permutation(len(edges) - 1) % len(_STRUCTURES)
            for structure, a, b in zip(structures, edges, edges[1:], strict=False):
                block = np.asarray(view[a:b], np.float32)
                dominating = generator.integers(0, b - a)
                row = block[dominating] * (TOWERING if _STRUCTURES[structure] is _large else DOMINATING)
                block = np.array(_STRUCTURES[structure](block))
                if b - a > 1:
                    block[dominating] = row
                view[a:b] = block.astype(new.dtype)
            if along and stripes not in along:
                view = np.moveaxis(new, spiked_axis(new.shape, along), 0)
                for place in probed_rows(len(view), generator):
                    view[place] = (np.asarray(view[place], np.float32) * DOMINATING).astype(new.dtype)
        changed.append(new)
    return changed


def tables(inputs: Sequence[np.ndarray[Any, Any]], public: Sequence[np.ndarray[Any, Any]]) -> list[int]:
    """Positions of the float inputs that are the same for every key: tables, not data, and left as they are.

    A kernel may rely on how they are made (both halves of a rotary table are equal, say). Where all are, none is.
    """
    floats = [number for number, array in enumerate(inputs) if is_float(array)]
    same = [number for number in floats if inputs[number].tobytes() == public[number].tobytes()]
    return same if len(same) < len(floats) else []


def _equal_rows(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.repeat(block[:1], len(block), axis=0)


def _large(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return block * LARGE


_STRUCTURES = (
    lambda block: block,
    _large,
    lambda block: block * TINY,
    _equal_rows,
    lambda block: np.round(block * 2) + 0.0,  # exact small integers, none of them -0
    np.zeros_like,
)
