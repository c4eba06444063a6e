"""Along which axes of its inputs a function mixes elements: what it sums, compares, looks up or shifts along.

Found from the jaxpr: each dimension of an intermediate carries the input axes that it runs along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core

from ratchet.exam.problem.jaxprs import ORDERING, constants_and_carried, equations, inner, is_comparison
from ratchet.exam.problem.rounding.elementwise import ELEMENTWISE

Axis = tuple[int, int]
"""(input, dimension)."""
Labels = tuple[frozenset[Axis], ...]
"""Per dimension of an intermediate: the input axes that it runs along."""


class Found(set[Axis]):
    """The axes that are mixed, and which inputs are ordered."""

    def __init__(self) -> None:
        super().__init__()
        self.ordered: dict[int, set[int]] = {}
        """By input, along which axes; none where that is not known."""
        self.into_one: set[int] = set()
        """Inputs that are summed or compared until one number is left."""

    def order(self, one: Labels, axes: Sequence[int]) -> None:
        """What runs along these dimensions is ordered, and with it all inputs of the value."""
        for number in {n for label in one for n, _ in label}:
            self.ordered.setdefault(number, set())
        for axis in axes:
            for number, dimension in one[axis]:
                self.ordered[number].add(dimension)


class InputAxes(NamedTuple):
    """What a function does along the axes of each of its inputs, sorted."""

    mixed: list[list[int]]
    """Its elements are mixed."""
    ordered: list[list[int] | None]
    """An index of an extreme is taken, or a sort; None where elements are not ordered, nor compared with others."""
    whole: list[list[int]]
    """It is summed, and any block of it may be zero or equal: not where exponentials weigh the terms. A largest weight
    that meets a zero leaves the sum to what is small beside it, and any rounding of its logarithm moves that."""
    total: list[list[int]]
    """All its axes, where one number is made of all its elements: a norm, a mean, an extreme."""


def input_axes(function: Callable[..., Any], *avals: jax.ShapeDtypeStruct) -> InputAxes:
    """Of each input of ``function``, traced at ``avals``."""
    closed, found = jax.make_jaxpr(function)(*avals), Found()
    start = [tuple(frozenset({(n, d)}) for d in range(len(a.shape))) for n, a in enumerate(avals)]
    _walk(closed.jaxpr, start, found)
    mixed = [sorted(d for n, d in found if n == number) for number in range(len(avals))]
    floats = [jnp.issubdtype(aval.dtype, jnp.floating) for aval in avals]
    is_weighed = any(equation.primitive.name in ("exp", "exp2") for equation in equations(closed.jaxpr))
    return InputAxes(
        mixed=mixed,
        ordered=[sorted(found.ordered[n]) if n in found.ordered and one else None for n, one in enumerate(floats)],
        whole=[[] if is_weighed else along for along in mixed],
        total=[
            along if n in found.into_one and floats[n] and _is_all(avals[n], along) else []
            for n, along in enumerate(mixed)
        ],
    )


def _is_all(aval: jax.ShapeDtypeStruct, axes: Sequence[int]) -> bool:
    """Whether an array has several elements, and runs along no other axes than these."""
    return math.prod(aval.shape) > 1 and all(size == 1 or axis in axes for axis, size in enumerate(aval.shape))


def _walk(jaxpr: Any, args: Sequence[Labels], found: Found) -> list[Labels]:
    known: dict[Any, Labels] = dict(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Labels:
        blank: Labels = tuple(frozenset() for _ in atom.aval.shape)
        return blank if isinstance(atom, core.Literal) else known.get(atom, blank)

    for equation in jaxpr.eqns:
        labels = [read(atom) for atom in equation.invars]
        known.update(zip(equation.outvars, _step(equation, labels, found), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _union(*several: frozenset[Axis]) -> frozenset[Axis]:
    return frozenset().union(*several)


def _step(equation: Any, labels: list[Labels], found: Found) -> list[Labels]:
    name, params = equation.primitive.name, equation.params
    outs = [tuple(v.aval.shape) for v in equation.outvars]
    if name in ORDERING or is_comparison(equation):
        for one in labels:
            found.order(one, _order_of(equation, len(one)))
    if name == "scan":
        return _scan(params, labels, found)
    if name == "while":
        skip = params["cond_nconsts"]
        return _walk(params["body_jaxpr"].jaxpr, labels[skip:], found)
    if name == "cond":
        several = [_walk(branch.jaxpr, labels[1:], found) for branch in params["branches"]]
        return [tuple(map(_union, *same)) if same[0] else () for same in zip(*several, strict=True)]
    called, _ = inner(equation)
    if called is not None and name not in _RULES:
        return _walk(called, labels, found)
    rule = _RULES.get(name)
    if rule is not None:
        return rule(equation, labels, found)
    if name in ELEMENTWISE:
        here = [
            tuple(x if size > 1 else frozenset() for x, size in zip(one, v.aval.shape, strict=True))
            for one, v in zip(labels, equation.invars, strict=True)
            if one
        ]
        return [tuple(map(_union, *here)) if here else tuple(frozenset() for _ in outs[0])]
    for one in labels:  # not known: it may mix anything
        found.update(_union(*one))
    return [tuple(frozenset() for _ in shape) for shape in outs]


def _order_of(equation: Any, rank: int) -> Sequence[int]:
    """The dimensions along which an operation orders operands of this rank."""
    params = equation.params
    axes = params.get("axes", params.get("dimensions", params.get("dimension", params.get("axis"))))
    if axes is None:
        axes = (rank - 1,) if equation.primitive.name == "top_k" else ()
    return [axis for axis in (axes if isinstance(axes, Sequence) else (axes,)) if axis < rank]


def _scan(params: Any, labels: list[Labels], found: Found) -> list[Labels]:
    consts, carry = constants_and_carried(params)
    first = consts + carry
    if carry:
        for one in labels[first:]:
            found.update(one[0])
    leading = _union(*(one[0] for one in labels[first:]))
    inside = [*labels[:first], *(one[1:] for one in labels[first:])]
    outs = _walk(params["jaxpr"].jaxpr, inside, found)
    if carry:  # what a turn makes is ordered in the next one
        again, second = consts, Found()
        inside[again : again + carry] = [
            tuple(map(_union, *two)) if two[0] else () for two in zip(inside[again:], outs[:carry], strict=False)
        ]
        _walk(params["jaxpr"].jaxpr, inside, second)
        for number, axes in second.ordered.items():
            found.ordered.setdefault(number, set()).update(axes)
    return [*outs[:carry], *((leading, *one) for one in outs[carry:])]


def _reduce(equation: Any, labels: list[Labels], found: Found) -> list[Labels]:
    axes = equation.params["axes" if "axes" in equation.params else "dimensions"]
    for one in labels:
        found.update(*(one[axis] for axis in axes if axis < len(one)))
        _note_totals(equation, one, found)
    kept = [tuple(x for d, x in enumerate(one) if d not in axes) for one in labels]
    return [kept[min(n, len(kept) - 1)] for n in range(len(equation.outvars))]


def _note_totals(equation: Any, one: Labels, found: Found) -> None:
    """What runs along an operand of which one number is made ends in it."""
    if math.prod(equation.outvars[0].aval.shape) == 1:
        found.into_one.update(number for label in one for number, _ in label)


def _along(equation: Any, labels: list[Labels], found: Found) -> list[Labels]:
    params = equation.params
    axis = params.get("axis", params.get("dimension", len(labels[0]) - 1))
    for one in labels:
        found.update(one[axis])
    return [labels[min(n, len(labels) - 1)] for n in range(len(equation.outvars))]


def _dot(equation: Any, labels: list[Labels], found: Found) -> list[Labels]:
    (contract, batch), (a, b) = equation.params["dimension_numbers"], labels
    for one, axes in zip((a, b), contract, strict=True):
        found.update(*(one[axis] for axis in axes))
        _note_totals(equation, one, found)
    both = [_union(a[x], b[y]) for x, y in zip(*batch, strict=True)]
    free = [
        one[d]
        for one, c, t in zip((a, b), contract, batch, strict=True)
        for d in range(len(one))
        if d not in c and d not in t
    ]
    return [(*both, *free)]


def _conv(equation: Any, labels: list[Labels], found: Found) -> list[Labels]:
    numbers, (a, b) = equation.params["dimension_numbers"], labels
    found.update(*(a[d] for d in numbers.lhs_spec[1:]), *(b[d] for d in numbers.rhs_spec[1:]))
    out: list[frozenset[Axis]] = [frozenset()] * len(a)
    out[numbers.out_spec[0]], out[numbers.out_spec[1]] = a[numbers.lhs_spec[0]], b[numbers.rhs_spec[0]]
    for to, of in zip(numbers.out_spec[2:], numbers.lhs_spec[2:], strict=True):
        out[to] = a[of]
    return [tuple(out)]


def _broadcast(equation: Any, labels: list[Labels], found: Found) -> list[Labels]:
    shape, out = equation.invars[0].aval.shape, [frozenset[Axis]()] * len(equation.outvars[0].aval.shape)
    for of, to in enumerate(equation.params["broadcast_dimensions"]):
        out[to] = labels[0][of] if shape[of] > 1 else frozenset()
    return [tuple(out)]


def _reshape(equation: Any, labels: list[Labels], found: Found) -> list[Labels]:
    """Dimensions that are split or joined keep what they run along together."""
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    out: list[frozenset[Axis]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        a, b = before[i : i + 1], after[j : j + 1]
        m, n = i + len(a), j + len(b)
        while math.prod(before[i:m]) != math.prod(after[j:n]):
            if math.prod(before[i:m]) < math.prod(after[j:n]):
                m += 1
            else:
                n += 1
        together = _union(*(labels[0][d] for d in range(i, m)))
        out += [together if after[d] > 1 else frozenset() for d in range(j, n)]
        i, j = m, n
    return [tuple(out)]


def _places(equation: Any, labels: list[Labels], found: Found) -> list[Labels]:
    """Slices, pads and concatenations: a dimension that changes its size is a neighbourhood."""
    out = equation.outvars[0].aval.shape
    here = [(one, v.aval.shape) for one, v in zip(labels, equation.invars, strict=True) if len(one) == len(out)]
    for one, shape in here:
        found.update(*(x for x, m, n in zip(one, shape, out, strict=True) if m != n))
    merged = tuple(map(_union, *(one for one, _ in here))) if here and out else ()
    return [merged] * len(equation.outvars)


def _gather(equation: Any, labels: list[Labels], found: Found) -> list[Labels]:
    numbers, shape = equation.params["dimension_numbers"], equation.outvars[0].aval.shape
    table, where = labels[0], labels[1]
    sizes, whole = equation.params["slice_sizes"], equation.invars[0].aval.shape
    batching = set(numbers.operand_batching_dims)
    taken = [d for d in range(len(whole)) if sizes[d] != whole[d] and d not in batching]
    found.update(*(table[d] for d in taken))
    dropped = set(numbers.collapsed_slice_dims) | batching
    kept = iter([table[d] for d in range(len(whole)) if d not in dropped])
    batch = iter(where[:-1])
    return [tuple(next(kept) if d in numbers.offset_dims else next(batch) for d in range(len(shape)))]


def _scatter(equation: Any, labels: list[Labels], found: Found) -> list[Labels]:
    numbers, (table, where, updates) = equation.params["dimension_numbers"], labels
    batch = [x for d, x in enumerate(updates) if d not in numbers.update_window_dims]
    found.update(_union(*batch), _union(*where))
    window = iter([updates[d] for d in numbers.update_window_dims])
    dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    inserted = [frozenset() if d in dropped else next(window) for d in range(len(table))]
    return [tuple(map(_union, table, inserted))]


_RULES: dict[str, Callable[[Any, list[Labels], Found], list[Labels]]] = {
    "dot_general": _dot,
    "conv_general_dilated": _conv,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "gather": _gather,
    "transpose": lambda e, labels, found: [tuple(labels[0][d] for d in e.params["permutation"])],
    "squeeze": lambda e, labels, found: [tuple(x for d, x in enumerate(labels[0]) if d not in e.params["dimensions"])],
}
_RULES |= dict.fromkeys("scatter scatter-add scatter-mul scatter-min scatter-max scatter_add".split(), _scatter)
_RULES |= dict.fromkeys("slice pad concatenate dynamic_slice dynamic_update_slice split".split(), _places)
_RULES |= dict.fromkeys(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin reduce".split(), _reduce
)
_RULES |= dict.fromkeys("cumsum cummax cummin cumprod cumlogsumexp sort top_k".split(), _along)
