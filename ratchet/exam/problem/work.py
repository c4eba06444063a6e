"""The work that a problem cannot avoid, found from the jaxpr of its reference: all of it is a lower bound.

What it multiplies, by dtype and precision, and what it touches: what is gathered or sliced from an input counts as what
is taken, not as all of it, and an input that is updated in place as the update. A loop of unknown length counts once.

What the chips of a mesh have to send each other, for references that only move and add. Each element carries two sets
of chips: those that lack something that it is made of, and those that alone hold something that it is made of. Where an
element ends on a chip that lacks some of it, that chip has to receive as much; where one ends on another chip than the
one that alone holds a part of it, as much has to leave that one. Elements that are the same count once. A reference
that computes anything else has no such bound here, and the answer is 0; so is it for integers, which may fit into fewer
bits than their dtype has.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ratchet.exam.problem.jaxprs import FlatJaxpr, Step, inner
from ratchet.values import Mesh

PASSES = {"DEFAULT": 1, "HIGH": 3, "HIGHEST": 6}
"""Passes of a bfloat16 matrix unit over a product of float32 operands."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What any program for a problem has to do, on all chips together."""

    products: Mapping[str, int]
    """FLOPs of products (two per multiplication) by what is multiplied: ``bf16``, ``int8``, ``int4``, ``f8``, ``f16``
    or ``f32x1``, ``f32x3``, ``f32x6`` by passes; ``f32x6`` for ``HIGHEST``."""
    input_bytes: tuple[int, ...]
    """Bytes touched of each input."""
    output_bytes: tuple[int, ...]
    """Bytes written of each output."""


def work_of(function: Callable[..., Any], *avals: jax.ShapeDtypeStruct) -> Work:
    """The work of ``function`` at ``avals``."""
    closed = jax.make_jaxpr(function)(*avals)
    jaxpr, count = closed.jaxpr, _Count()
    aliases: dict[Any, int] = {var: n for n, var in enumerate(jaxpr.invars)}
    _walk(jaxpr, aliases, 1, count)
    for var in jaxpr.outvars:  # handed through, so read as a whole
        if not isinstance(var, core.Literal) and var in aliases and var not in count.updated:
            count.everything.add(aliases[var])
    sizes = [(_bytes(v.aval), math.prod(v.aval.shape)) for v in jaxpr.invars]
    inputs = [
        size if n in count.everything or not elements else min(size, count.taken.get(n, 0) * size // elements)
        for n, (size, elements) in enumerate(sizes)
    ]
    outputs = [
        min(_bytes(v.aval), 0 if isinstance(v, core.Literal) else count.updated.get(v, _bytes(v.aval)))
        for v in jaxpr.outvars
    ]
    for number, output, replaced in _replaced(FlatJaxpr(closed)):
        inputs[number], outputs[output] = 0, min(outputs[output], replaced)
    return Work(products=count.products, input_bytes=tuple(inputs), output_bytes=tuple(outputs))


def _replaced(flat: FlatJaxpr) -> list[tuple[int, int, int]]:
    """Inputs of which a mask replaces rows: number of the input and of the output, bytes of what takes their place.

    ``where(mask, row, input)``, the row broadcast, need not touch what it keeps if nothing else reads the input.
    """
    makers = {out: step for step in flat.steps for out in step.outs}
    uses = Counter(
        atom for atoms in (*(step.ins for step in flat.steps), flat.outputs) for atom in atoms if _is_var(atom)
    )
    found = []
    for output, result in enumerate(flat.outputs):
        atom, written = result, 0
        while row := _row(atom, makers, flat) if uses[atom] == 1 else None:
            atom, written = row[0], written + row[1]
        if written and atom in flat.inputs and uses[atom] == 1:
            found.append((flat.inputs.index(atom), output, written))
    return found


def _row(atom: Any, makers: Mapping[Any, Step], flat: FlatJaxpr) -> tuple[Any, int] | None:
    """Of an array that keeps another but for a row that was broadcast: that other, and the row's bytes."""
    step = makers.get(atom)
    if step is None or step.equation.primitive.name != "select_n" or len(step.ins) != 3:
        return None
    one, other = ((each, _before_broadcast(each, makers, flat)) for each in step.ins[1:])
    if (one[1] > 0) == (other[1] > 0):
        return None
    return (one[0], other[1]) if other[1] else (other[0], one[1])


def _before_broadcast(atom: Any, makers: Mapping[Any, Step], flat: FlatJaxpr) -> int:
    """Bytes of what was broadcast to this array; 0 where none was."""
    begin = atom
    while _is_var(atom) and (step := makers.get(atom)) and step.equation.primitive.name in _SAME | {"broadcast_in_dim"}:
        atom = step.ins[0]
    if not _is_var(atom):
        return 0
    before = flat.avals[atom]
    return _bytes(before) if math.prod(before.shape) < math.prod(flat.avals[begin].shape) else 0


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, core.Literal)


@dataclass(kw_only=True)
class _Count:
    products: dict[str, int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    """Elements taken from an input by slices and gathers."""
    everything: set[int] = field(default_factory=set)
    """Inputs that something uses as a whole."""
    updated: dict[Any, int] = field(default_factory=dict)
    """Variables that are an input with some places written: the bytes of these."""


def _bytes(aval: Any) -> int:
    dtype = jnp.dtype(aval.dtype)
    bits = 4 if dtype.name in ("int4", "uint4", "float4_e2m1fn") else 8 * dtype.itemsize
    return -(-math.prod(aval.shape) * bits // 8)


_SAME = frozenset("convert_element_type reshape transpose squeeze expand_dims copy stop_gradient rev".split())
_TAKES = frozenset("slice dynamic_slice gather".split())
_UPDATES = {"dynamic_update_slice": 1, "scatter": 2, "scatter-add": 2, "scatter_add": 2}


def _walk(jaxpr: Any, aliases: dict[Any, int], times: int, count: _Count) -> list[Any]:
    """Counts the equations. ``aliases``: variables that are an input, elements moved or converted at most."""

    def alias(atom: Any) -> int | None:
        return None if isinstance(atom, core.Literal) else aliases.get(atom)

    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if jaxprs := _jaxprs_of(equation):
            _enter(equation, jaxprs, aliases, times, count)
            continue
        if name in ("dot_general", "conv_general_dilated"):
            kind, flops = _product(equation)
            count.products[kind] = count.products.get(kind, 0) + times * flops
        for place, of in enumerate(map(alias, equation.invars)):
            if of is not None:
                _use(equation, place, of, aliases, times, count)
    return jaxpr.outvars


def _use(equation: Any, place: int, of: int, aliases: dict[Any, int], times: int, count: _Count) -> None:
    """One operand that is input ``of``."""
    name, atom = equation.primitive.name, equation.invars[place]
    if name in _SAME:
        aliases[equation.outvars[0]] = of
    elif place == 0 and name in _TAKES:
        taken = times * math.prod(equation.outvars[0].aval.shape)
        count.taken[of] = count.taken.get(of, 0) + taken
    elif place == 0 and name in _UPDATES:
        update = equation.invars[_UPDATES[name]]
        before = count.updated.get(atom, 0)
        count.updated[equation.outvars[0]] = before + times * _bytes(update.aval)
        aliases[equation.outvars[0]] = of
        if "add" in name:
            count.taken[of] = count.taken.get(of, 0) + times * math.prod(update.aval.shape)
    else:
        count.everything.add(of)


def _jaxprs_of(equation: Any) -> list[Any]:
    """The jaxprs that an equation runs, each with its operands aligned to the end of its own."""
    params = equation.params
    if equation.primitive.name in _UPDATES or equation.primitive.name.startswith("scatter"):
        return []
    if equation.primitive.name == "while":
        return [params["body_jaxpr"].jaxpr]
    if equation.primitive.name == "cond":
        return [branch.jaxpr for branch in params["branches"]]
    called, _ = inner(equation)
    return [] if called is None else [called]


def _enter(equation: Any, jaxprs: Sequence[Any], aliases: dict[Any, int], times: int, count: _Count) -> None:
    name = equation.primitive.name
    often = times * (equation.params["length"] if name == "scan" else 1)
    results = []
    for jaxpr in jaxprs:
        operands = equation.invars[-len(jaxpr.invars) :] if jaxpr.invars else []
        own = _Count() if len(jaxprs) > 1 else count
        inside = {
            var: aliases[atom]
            for var, atom in zip(jaxpr.invars, operands, strict=True)
            if not isinstance(atom, core.Literal) and atom in aliases
        }
        walked = jaxpr.invars[equation.params["num_consts"] :] if name == "scan" else []
        count.everything.update(inside.pop(var) for var in walked if var in inside)  # read once, whole
        _walk(jaxpr, inside, often, own)
        results.append(own)
        for outer, var in zip(equation.outvars, jaxpr.outvars, strict=name not in ("scan", "while", "cond")):
            if isinstance(var, core.Literal) or var not in inside:
                continue
            if name in ("scan", "while", "cond"):
                own.everything.add(inside[var])
                continue
            aliases[outer] = inside[var]
            if var in own.updated:
                count.updated[outer] = own.updated[var]
    if len(jaxprs) > 1:
        _cheapest(results, count)


def _cheapest(branches: Sequence[_Count], count: _Count) -> None:
    """Of several branches the least of each."""
    for kind in set.intersection(*(set(branch.products) for branch in branches)):
        count.products[kind] = count.products.get(kind, 0) + min(branch.products[kind] for branch in branches)
    count.everything |= set.intersection(*(branch.everything for branch in branches))


def _product(equation: Any) -> tuple[str, int]:
    a, b = (v.aval for v in equation.invars)
    out = math.prod(equation.outvars[0].aval.shape)
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        terms = math.prod(a.shape[axis] for axis in contracted)
    else:
        numbers = equation.params["dimension_numbers"]
        terms = math.prod(b.shape) // b.shape[numbers.rhs_spec[0]]
    return _kind(equation, a.dtype, b.dtype), 2 * out * terms


def _kind(equation: Any, *dtypes: Any) -> str:
    """By the wider operand: the matrix unit converts the other to it."""
    name = max((jnp.dtype(dtype).name for dtype in dtypes), key=lambda n: (_bits(n), n))
    if name == "float32":
        asked = equation.params["precision"]
        asked = asked[0] if isinstance(asked, tuple) else asked
        return f"f32x{PASSES.get(getattr(asked, 'name', str(asked)), 1)}"
    short = {"bfloat16": "bf16", "float16": "f16", "uint8": "int8", "uint4": "int4"}
    return short.get(name, "f8" if name.startswith("float8") else name)


def _bits(name: str) -> int:
    digits = "".join(c for c in name.partition("_")[0] if c.isdigit())
    return int(digits) if digits else 8


# --- between chips ---

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
        return _Elements(
            lacking=np.bitwise_or.reduce(operands[0].lacking, axis=params["axes"]),
            alone=np.bitwise_or.reduce(operands[0].alone, axis=params["axes"]),
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
