"""The work that a problem cannot avoid, found from the jaxpr of its reference: all of it is a lower bound.

What it multiplies, by dtype and precision, and what it touches: what is gathered or sliced from an input counts as what
is taken, not as all of it, and an input that is updated in place as the update. A loop of unknown length counts once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from ratchet.exam.problem.jaxprs import FlatJaxpr, Step, constants_and_carried, inner

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
    sizes = [(_bytes(aval), math.prod(aval.shape)) for aval in closed.in_avals]
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
    """Of an array that keeps another except for a row that was broadcast: that other, and the row's bytes."""
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
        walked = jaxpr.invars[constants_and_carried(equation.params)[0] :] if name == "scan" else []
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
