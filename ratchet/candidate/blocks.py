"""Cuts a function into equal blocks along an axis on which its rows have nothing to do with each other.

The float64 reference of attention holds several matrices of sequence times sequence at once. Query rows are independent
of each other, so it is evaluated some rows at a time. Which axes those are is found from the jaxpr: dimensions of
intermediates that have to be cut together form a class, and a class that nothing mixes can be cut.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from ratchet.candidate.rounding.elementwise import ELEMENTWISE

ELEMENTS = 1 << 22
"""Of the largest intermediate of a block: 32 MiB in float64, and there are a few dozen of them."""
INLINED = ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call")
"""Calls of an inner jaxpr that are nothing but that."""

Dim = tuple[int, int]
"""(value, dimension). Values are numbered as they are made."""


def inner(equation: Any) -> Any:
    """The closed jaxpr that a call holds."""
    params = equation.params
    return params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """A function in blocks: ``block`` is the jaxpr of ``(start, *inputs) -> outputs`` for one of them."""

    block: Any
    count: int
    size: int
    """Of a block, in elements of the axis that is cut."""
    inputs: tuple[int | None, ...]
    """The dimension of each input that is cut; None: every block takes the whole."""
    outputs: tuple[int, ...]

    def run(self, call: Callable[[list[Any]], list[Any]], inputs: Sequence[Any]) -> list[Any]:
        """All blocks, one after another, by ``call``, which evaluates ``block`` and may give each output several times.

        ``call`` returns some multiple of the outputs, in order: values, then their losses.
        """

        def one(number: Any) -> list[Any]:
            start = number * self.size
            cut = [
                x if d is None else lax.dynamic_slice_in_dim(x, start, self.size, d)
                for x, d in zip(inputs, self.inputs, strict=True)
            ]
            return call([start, *cut])

        stacked = lax.map(one, jnp.arange(self.count, dtype=jnp.int32))
        return [self._joined(x, self.outputs[n % len(self.outputs)]) for n, x in enumerate(stacked)]

    def _joined(self, stacked: Any, dimension: int) -> Any:
        apart = jnp.moveaxis(stacked, 0, dimension)
        shape = list(apart.shape)
        shape[dimension : dimension + 2] = [self.count * self.size]
        return apart.reshape(shape)


@dataclass(frozen=True, kw_only=True)
class _Step:
    """An equation over numbered values; a literal stays one."""

    equation: Any
    ins: tuple[Any, ...]
    outs: tuple[int, ...]


class _Flat:
    """A jaxpr with its inner calls inlined."""

    def __init__(self, closed: Any) -> None:
        self.steps: list[_Step] = []
        self.avals: list[Any] = []
        self.consts = [
            (self._new(var.aval), const) for var, const in zip(closed.jaxpr.constvars, closed.consts, strict=True)
        ]
        self.inputs = [self._new(var.aval) for var in closed.jaxpr.invars]
        self.outputs = self._walk(closed.jaxpr, [n for n, _ in self.consts], self.inputs)

    def _new(self, aval: Any) -> int:
        self.avals.append(aval)
        return len(self.avals) - 1

    def _walk(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Any:
            return atom if isinstance(atom, core.Literal) else known[atom]

        for equation in jaxpr.eqns:
            ins = [read(atom) for atom in equation.invars]
            if equation.primitive.name in INLINED:
                closed = inner(equation)
                made = [self._new(var.aval) for var in getattr(closed, "jaxpr", closed).constvars]
                self.consts += zip(made, getattr(closed, "consts", ()), strict=True)
                outs = self._walk(getattr(closed, "jaxpr", closed), made, ins)
            else:
                outs = [self._new(var.aval) for var in equation.outvars]
                self.steps.append(_Step(equation=equation, ins=tuple(ins), outs=tuple(outs)))
            known.update(zip(equation.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]


class _Classes:
    """Dimensions that are cut together, and those that cannot be."""

    def __init__(self) -> None:
        self._above: dict[Dim, Dim] = {}
        self._mixed: set[Dim] = set()

    def root(self, dim: Dim) -> Dim:
        while (above := self._above.get(dim, dim)) != dim:
            dim = above
        return dim

    def join(self, a: Dim, b: Dim) -> None:
        self._above[self.root(a)] = self.root(b)

    def mix(self, *dims: Dim) -> None:
        self._mixed.update(dims)

    def free(self, dims: Sequence[Dim]) -> dict[Dim, set[Dim]]:
        """The classes that nothing mixes: root -> dimensions."""
        mixed, found = {self.root(dim) for dim in self._mixed}, defaultdict(set)
        for dim in dims:
            if self.root(dim) not in mixed:
                found[self.root(dim)].add(dim)
        return dict(found)


def in_blocks(closed: Any, elements: int = ELEMENTS) -> Blocks | None:
    """``closed`` in blocks with intermediates of at most ``elements`` each; None if it is small, or cannot be cut."""
    flat = _Flat(closed)
    largest = max((math.prod(aval.shape) for aval in flat.avals), default=0)
    if largest <= elements or any(isinstance(out, core.Literal) for out in flat.outputs):
        return None
    classes = _Classes()
    for step in flat.steps:
        _constrain(step, classes)
    every = [(n, d) for n, aval in enumerate(flat.avals) for d in range(len(aval.shape))]
    options = [
        {n: d for n, d in dims}
        for dims in classes.free(every).values()
        if len({n for n, _ in dims}) == len(dims) and set(flat.outputs) <= {n for n, _ in dims}
    ]
    if not options:
        return None
    cut = min(options, key=lambda option: _most(flat, range(len(flat.avals)), option, 1))
    first = flat.outputs[0]
    whole = flat.avals[first].shape[cut[first]]
    sizes = [whole // count for count in range(1, whole + 1) if whole % count == 0]
    # What is not cut is as large in a block of any size: it does not count.
    size = next((size for size in sizes if _most(flat, cut, cut, size) <= elements), sizes[-1])
    if size == whole:
        return None
    block = _traced(flat, cut, size)
    return Blocks(
        block=block,
        count=whole // size,
        size=size,
        inputs=tuple(cut.get(n) for n in flat.inputs),
        outputs=tuple(cut[n] for n in flat.outputs),
    )


def _shape(aval: Any, dimension: int | None, size: int) -> tuple[int, ...]:
    return tuple(size if d == dimension else extent for d, extent in enumerate(aval.shape))


def _most(flat: _Flat, values: Iterable[int], cut: dict[int, int], size: int) -> int:
    """Elements of the largest of ``values`` in a block."""
    return max(math.prod(_shape(flat.avals[n], cut.get(n), size)) for n in values)


def _traced(flat: _Flat, cut: dict[int, int], size: int) -> Any:
    """The jaxpr of one block."""

    def block(start: Any, *inputs: Any) -> list[Any]:
        known: dict[int, Any] = dict(zip(flat.inputs, inputs, strict=True))
        for n, const in flat.consts:
            known[n] = lax.dynamic_slice_in_dim(const, start, size, cut[n]) if n in cut else const
        for step in flat.steps:
            args = [_constant(x) if isinstance(x, core.Literal) else known[x] for x in step.ins]
            outs = _bind(step, cut.get(step.outs[0]), size, start, args)
            known.update(zip(step.outs, outs, strict=True))
        return [known[n] for n in flat.outputs]

    avals = [jax.ShapeDtypeStruct(_shape(flat.avals[n], cut.get(n), size), flat.avals[n].dtype) for n in flat.inputs]
    with jax.enable_x64(False):
        return jax.make_jaxpr(block)(jax.ShapeDtypeStruct((), jnp.int32), *avals)


def _bind(step: _Step, dimension: int | None, size: int, start: Any, args: list[Any]) -> list[Any]:
    """One equation for a block: its own, with the sizes of the block where it names some."""
    equation, params = step.equation, dict(step.equation.params)
    name = equation.primitive.name
    if dimension is not None:
        for key in ("shape", "new_sizes", "slice_sizes", "limit_indices"):
            if key in params and not (key == "shape" and name == "split"):
                sizes = list(params[key])
                sizes[dimension] = size
                params[key] = tuple(sizes)
    outs = equation.primitive.bind(*args, **params)
    if name == "iota" and dimension == params["dimension"]:
        outs = outs + start.astype(outs.dtype)
    return list(outs) if equation.primitive.multiple_results else [outs]


# --- which dimensions of an equation's operands and results are cut together, and which it mixes -------------------


def _constrain(step: _Step, classes: _Classes) -> None:
    name = step.equation.primitive.name
    rule = _RULES.get(name) or (_alike if name in ELEMENTWISE else None)
    pairs = rule(step.equation) if rule is not None else None
    operands = [v.aval.shape for v in step.equation.invars]
    results = [v.aval.shape for v in step.equation.outvars]
    joined = [(a, b) for a, b in pairs or () if operands[a[0]][a[1]] == results[b[0]][b[1]]]
    given = {n: x for n, x in enumerate(step.ins) if not isinstance(x, core.Literal)}
    for (operand, a), (result, b) in joined:
        if operand in given:
            classes.join((given[operand], a), (step.outs[result], b))
    from_ = {a for a, _ in joined}
    for operand, number in given.items():
        lone = [d for d, size in enumerate(operands[operand]) if size > 1 and (operand, d) not in from_]
        classes.mix(*((number, d) for d in lone))
    if pairs is None or name in _RESIZED:
        to = {b for _, b in joined}
        for result, shape in enumerate(results):
            classes.mix(*((step.outs[result], d) for d in range(len(shape)) if (result, d) not in to))


def _constant(literal: Any) -> Any:
    return np.asarray(literal.val, literal.aval.dtype)


Pairs = list[tuple[tuple[int, int], tuple[int, int]]]
"""((operand, dimension), (result, dimension)): the two run along each other, one for one."""


def _alike(equation: Any) -> Pairs:
    ranks = [len(v.aval.shape) for v in equation.outvars]
    return [
        ((n, d), (m, d))
        for n, v in enumerate(equation.invars)
        for m, rank in enumerate(ranks)
        if len(v.aval.shape) == rank
        for d in range(rank)
    ]


def _except(*keys: str) -> Callable[[Any], Pairs]:
    """Along every dimension but those that a parameter names; results have all dimensions."""

    def rule(equation: Any) -> Pairs:
        named = next(equation.params[key] for key in keys if key in equation.params)
        skipped = set(named) if isinstance(named, Sequence) else {named}
        return [pair for pair in _alike(equation) if pair[0][1] not in skipped]

    return rule


def _reduced(equation: Any) -> Pairs:
    axes = set(equation.params["axes"])
    kept = [d for d in range(len(equation.invars[0].aval.shape)) if d not in axes]
    return [((0, d), (m, n)) for n, d in enumerate(kept) for m in range(len(equation.outvars))]


def _broadcast(equation: Any) -> Pairs:
    return [((0, of), (0, to)) for of, to in enumerate(equation.params["broadcast_dimensions"])]


def _squeezed(equation: Any) -> Pairs:
    dropped = {d % len(equation.invars[0].aval.shape) for d in equation.params["dimensions"]}
    kept = [d for d in range(len(equation.invars[0].aval.shape)) if d not in dropped]
    return [((0, d), (0, n)) for n, d in enumerate(kept)]


def _dot(equation: Any) -> Pairs:
    (contract, batch) = equation.params["dimension_numbers"]
    found: Pairs = []
    for n in range(len(batch[0])):
        found += [((side, batch[side][n]), (0, n)) for side in (0, 1)]
    place = len(batch[0])
    for side in (0, 1):
        for d in range(len(equation.invars[side].aval.shape)):
            if d not in contract[side] and d not in batch[side]:
                found.append(((side, d), (0, place)))
                place += 1
    return found


def _reshape(equation: Any) -> Pairs:
    """Dimensions before which and behind which nothing is split or joined."""
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    if equation.params.get("dimensions") is not None:
        return []
    places = {math.prod(after[:n]): n for n in range(len(after)) if after[n] > 1}
    starts = [(d, places.get(math.prod(before[:d]))) for d in range(len(before)) if before[d] > 1]
    return [((0, d), (0, n)) for d, n in starts if n is not None and before[d] == after[n]]


def _top(equation: Any) -> Pairs:
    return [pair for pair in _alike(equation) if pair[0][1] != len(equation.invars[0].aval.shape) - 1]


def _slice(equation: Any) -> Pairs:
    if any(stride != 1 for stride in equation.params.get("strides") or ()):
        return []
    return [pair for pair in _alike(equation) if pair[0][0] == 0]


def _iota(equation: Any) -> Pairs | None:
    return [] if jnp.issubdtype(equation.params["dtype"], jnp.integer) else None


_RULES: dict[str, Callable[[Any], Pairs | None]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _except("dimension"),
    "dot_general": _dot,
    "dynamic_slice": _slice,
    "iota": _iota,
    "optimization_barrier": lambda equation: [pair for pair in _alike(equation) if pair[0][0] == pair[1][0]],
    "reshape": _reshape,
    "slice": _slice,
    "sort": _except("dimension"),
    "squeeze": _squeezed,
    "top_k": _top,
    "transpose": lambda equation: [((0, of), (0, to)) for to, of in enumerate(equation.params["permutation"])],
}
_RULES |= dict.fromkeys(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin".split(), _reduced
)
_RULES |= dict.fromkeys("cumsum cummax cummin cumprod cumlogsumexp".split(), _except("axis"))
_RESIZED = frozenset(
    "concatenate dynamic_slice reshape slice sort top_k cumsum cummax cummin cumprod cumlogsumexp".split()
)
"""Whose results have dimensions that are mixed, or of another size than the operand's."""
