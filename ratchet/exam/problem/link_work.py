"""What the chips of a mesh have to send each other, for references that only move and add: a lower bound.

Each element carries two sets of chips: those that lack something that it is made of, and those that alone hold
something that it is made of. Where an element ends on a chip that lacks some of it, that chip has to receive as much;
where one ends on another chip than the one that alone holds a part of it, as much has to leave that one. Elements that
are the same count once. A reference that computes anything else has no such bound here, and the answer is 0; so is it
for integers, which may fit into fewer bits than their dtype has.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ratchet.exam.problem.jaxprs import FlatJaxpr
from ratchet.values import Mesh

Split = tuple[tuple[str, ...], ...]

MOST_ELEMENTS = 1 << 26
"""Of all inputs together; a larger problem has no bound here."""
MOST_CHIPS = 8

_MOVES = frozenset("reshape transpose squeeze expand_dims rev slice concatenate copy broadcast_in_dim".split())
_UNCHANGED = frozenset("convert_element_type stop_gradient".split())
_SCALES = frozenset("mul div".split())
_SUMS = frozenset("reduce_sum add add_any".split())


@dataclass(frozen=True, kw_only=True)
class _Elements:
    """An array, by what its elements are made of."""

    lacking: np.ndarray
    """uint8, a bit per chip: it lacks something that the element is made of."""
    alone: np.ndarray
    """uint8, a bit per chip: it alone holds something that the element is made of."""
    ids: np.ndarray
    """int32: equal for elements that are the same."""

    def each(self, move: Callable[..., Any], *others: _Elements) -> _Elements:
        """What a move makes of this array, or of several."""
        several = (self, *others)
        return _Elements(
            lacking=np.asarray(move(*(one.lacking for one in several))),
            alone=np.asarray(move(*(one.alone for one in several))),
            ids=np.asarray(move(*(one.ids for one in several))),
        )


def link_bytes(
    function: Callable[..., Any], avals: Sequence[jax.ShapeDtypeStruct], mesh: Mesh, left: Sequence[Split | None]
) -> int:
    """The least that one chip of ``mesh`` has to receive or to send, in bytes: the larger, of the chip with most.

    Args:
        function: the reference.
        avals: of its inputs, which are split as ``mesh`` says.
        left: how the outputs have to be split; one that is None may be anywhere and counts nothing.
    """
    sizes = [math.prod(aval.shape) for aval in avals]
    if not 1 < mesh.chips <= MOST_CHIPS or sum(sizes) > MOST_ELEMENTS:
        return 0
    closed = jax.make_jaxpr(function)(*avals)
    flat, dtypes = FlatJaxpr(closed), [jnp.dtype(aval.dtype) for aval in (*closed.in_avals, *closed.out_avals)]
    if not _is_bounded(flat) or not all(jnp.issubdtype(dtype, jnp.floating) for dtype in dtypes):
        return 0
    ends = np.cumsum([0, *sizes])
    inputs = [_held(mesh, n, aval.shape, int(ends[n])) for n, aval in enumerate(avals)]
    outputs = _evaluated(flat, inputs)
    places = [
        (one, Mesh(axes=mesh.axes, inputs=(split,)))
        for one, split in zip(outputs, left, strict=True)
        if split is not None
    ]
    least = min(dtype.itemsize for dtype in dtypes)
    return least * max(_of_chip(chip, places, mesh.chips) for chip in range(mesh.chips))


def _is_bounded(flat: FlatJaxpr) -> bool:
    """Whether all of it moves and adds. What is added is used once: else sums may follow from each other."""
    equations = [step.equation for step in flat.steps]
    names = {equation.primitive.name for equation in equations}
    scales = [equation for equation in equations if equation.primitive.name in _SCALES]
    if not names <= _MOVES | _UNCHANGED | _SCALES | _SUMS:
        return False
    if not all(any(map(_is_factor, equation.invars)) for equation in scales):
        return False
    return not names & _SUMS or not _repeats(flat)


def _repeats(flat: FlatJaxpr) -> bool:
    """Whether something is used twice, or made larger than it is."""
    atoms = [atom for atoms in (*(step.ins for step in flat.steps), flat.outputs) for atom in atoms]
    uses = Counter(atom for atom in atoms if not isinstance(atom, core.Literal))
    grows = any(
        step.equation.primitive.name == "broadcast_in_dim"
        and math.prod(step.equation.outvars[0].aval.shape) > math.prod(step.equation.invars[0].aval.shape)
        for step in flat.steps
    )
    return grows or any(count > 1 for count in uses.values())


def _is_factor(atom: Any) -> bool:
    return isinstance(atom, core.Literal) and bool(np.all(np.isfinite(atom.val)) and np.all(atom.val != 0))


def _held(mesh: Mesh, number: int, shape: tuple[int, ...], first: int) -> _Elements:
    holders, count = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    for chip in range(mesh.chips):
        part = mesh.part(number, shape, chip)
        holders[part] |= np.uint8(1 << chip)
        count[part] += 1
    everybody = np.uint8((1 << mesh.chips) - 1)
    ids = np.arange(first, first + holders.size, dtype=np.int32).reshape(shape)
    return _Elements(lacking=everybody & ~holders, alone=np.where(count == 1, holders, np.uint8(0)), ids=ids)


def _evaluated(flat: FlatJaxpr, inputs: Sequence[_Elements]) -> list[_Elements]:
    known: dict[Any, _Elements] = dict(zip(flat.inputs, inputs, strict=True))

    def read(atom: Any) -> _Elements:
        if isinstance(atom, core.Literal) or atom not in known:  # a constant: every chip has it
            aval: Any = atom.aval if isinstance(atom, core.Literal) else flat.avals[atom]
            nothing = np.zeros(aval.shape, np.uint8)
            return _Elements(lacking=nothing, alone=nothing, ids=np.full(aval.shape, -1, np.int32))
        return known[atom]

    for step in flat.steps:
        known[step.outs[0]] = _moved(step.equation, [read(atom) for atom in step.ins])
    return [read(atom) for atom in flat.outputs]


def _moved(equation: Any, operands: Sequence[_Elements]) -> _Elements:
    name, params = equation.primitive.name, equation.params
    if name in _MOVES:
        return operands[0].each(
            lambda *arrays: equation.primitive.bind(*map(jnp.asarray, arrays), **params), *operands[1:]
        )
    if name == "reduce_sum":
        united: Any = np.bitwise_or.reduce
        return _Elements(
            lacking=united(operands[0].lacking, axis=params["axes"]),
            alone=united(operands[0].alone, axis=params["axes"]),
            ids=operands[0].ids.min(axis=params["axes"]),
        )
    if name in _UNCHANGED:
        return operands[0]
    one, other = operands  # a sum, or a product with a constant, which is made of nothing
    return _Elements(
        lacking=one.lacking | other.lacking, alone=one.alone | other.alone, ids=np.maximum(one.ids, other.ids)
    )


def _of_chip(chip: int, outputs: Sequence[tuple[_Elements, Mesh]], chips: int) -> int:
    """Elements that ``chip`` has to receive or to send: the larger number."""
    mine, theirs = np.uint8(1 << chip), []
    received = []
    for one, mesh in outputs:
        for place in range(chips):
            part = mesh.part(0, one.ids.shape, place)
            if place == chip:
                received.append(one.ids[part][(one.lacking[part] & mine) != 0])
            else:
                theirs.append(one.ids[part][(one.alone[part] & mine) != 0])
    return max((np.unique(np.concatenate(ids)).size for ids in (received, theirs) if ids), default=0)
