"""A jaxpr as one list of equations, and which dimensions of its values run along each other or are mixed.

Dimensions that run along each other can be cut together: into blocks of rows (``blocks.py``), or into tiles of what is
only summed (``tiles.py``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ratchet.exam.problem.rounding.elementwise import ELEMENTWISE

INLINED = frozenset("jit pjit closed_call core_call remat remat2 checkpoint custom_jvp_call custom_vjp_call".split())
"""Calls of an inner jaxpr that are nothing but that."""


def inner(equation: Any) -> tuple[Any, Sequence[Any]]:
    """The jaxpr that a call holds, and its constants; None where an equation is no call."""
    params = equation.params
    closed = params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")
    return getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())


def constants_and_carried(scan: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a scan are constants, and how many it carries: in JAX 0.12 as trees of its operands."""
    if "num_consts" in scan:
        return scan["num_consts"], scan["num_carry"]
    consts, carried, _ = map(len, scan["ft_in"].unpack())
    return consts, carried


ORDERING = frozenset(
    "argmax argmin top_k sort reduce reduce_window select_and_scatter_add select_and_gather_add".split()
)
"""Operations whose result depends on which of equal numbers comes first."""


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, those of inner ones included."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for one in value if isinstance(value, list | tuple) else (value,):
                if hasattr(one := getattr(one, "jaxpr", one), "eqns"):
                    yield from equations(one)


def is_comparison(equation: Any) -> bool:
    """Whether two floats are compared, neither of them a constant of the source."""
    if equation.primitive.name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        return False
    sides = equation.invars
    return sides[0] is not sides[1] and all(
        not isinstance(x, core.Literal) and jnp.issubdtype(x.aval.dtype, jnp.floating) for x in sides
    )


@dataclass(frozen=True, kw_only=True)
class Step:
    """An equation over numbered values; a literal stays one."""

    equation: Any
    ins: tuple[Any, ...]
    outs: tuple[int, ...]


class FlatJaxpr:
    """A jaxpr with its inner calls inlined."""

    def __init__(self, closed: Any) -> None:
        self.steps: list[Step] = []
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
                called, values = inner(equation)
                made = [self._new(var.aval) for var in called.constvars]
                self.consts += zip(made, values, strict=True)
                outs = self._walk(called, made, ins)
            else:
                outs = [self._new(var.aval) for var in equation.outvars]
                self.steps.append(Step(equation=equation, ins=tuple(ins), outs=tuple(outs)))
            known.update(zip(equation.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]


def constant(literal: Any) -> Any:
    """Its value as an array of its dtype."""
    return np.asarray(literal.val, literal.aval.dtype)


def resized(equation: Any, dimension: int | None, size: int) -> dict[str, Any]:
    """The parameters of an equation whose result has another size along a dimension: where they name it."""
    params = dict(equation.params)
    if dimension is not None:
        for key in ("shape", "new_sizes", "slice_sizes", "limit_indices"):
            if key in params and not (key == "shape" and equation.primitive.name == "split"):
                sizes = list(params[key])
                sizes[dimension] = size
                params[key] = tuple(sizes)
    return params


Dim = tuple[int, int]
"""(value, dimension). Values are numbered as they are made."""


class DimensionClasses:
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


def constrain(step: Step, classes: DimensionClasses, *, summing: bool = False) -> None:
    """Add what an equation says; with ``summing`` dimensions that a sum or an extreme takes together stay apart."""
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
    if summing:
        for pair in summed(step.equation):
            from_.update(pair)
            if len(ends := [(given[operand], d) for operand, d in pair if operand in given]) > 1:
                classes.join(*ends)
    for operand, number in given.items():
        lone = [d for d, size in enumerate(operands[operand]) if size > 1 and (operand, d) not in from_]
        classes.mix(*((number, d) for d in lone))
    if pairs is None or name in _RESIZED:
        to = {b for _, b in joined}
        for result, shape in enumerate(results):
            classes.mix(*((step.outs[result], d) for d in range(len(shape)) if (result, d) not in to))


def summed(equation: Any) -> list[tuple[Dim, ...]]:
    """(operand, dimension) of what a sum of floats or an extreme takes together: of a product, of both operands."""
    params, name = equation.params, equation.primitive.name
    if name in ("reduce_max", "reduce_min") or (name == "reduce_sum" and _is_float(equation)):
        return [((0, d),) for d in params["axes"]]
    if name == "dot_general" and _is_float(equation):
        (left, right), _ = params["dimension_numbers"]
        return [((0, a), (1, b)) for a, b in zip(left, right, strict=True)]
    return []


def _is_float(equation: Any) -> bool:
    """A real one: sums of complex numbers are not taken apart."""
    return bool(jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating))


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
