"""Where equal numbers are equal in any honest arithmetic, so that an index among them has one answer.

What is computed is off by its loss, and of two numbers that are equal in float64 either may be larger in a kernel. Not
so where nothing is rounded: sums and products of numbers of few bits are exact in float32, in any order and in as many
passes as a product takes. Those are *sure*. And not so where a function takes sure numbers one by one, beside others
that are the same for a whole line, as a softmax does: then equal ones stay equal *along* that line. So do sums of two
such that vary (a sigmoid and a bias) where both terms are equal, which a *key* tells: a kernel may add in any order,
but of a product it may take the factors apart. An input is sure where it has few bits itself: what a formula makes of a
whole float32 the next one rounds otherwise.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from ratchet.exam.problem.jaxprs import ORDERING, equations, is_comparison
from ratchet.exam.problem.rounding.elementwise import ELEMENTWISE
from ratchet.exam.problem.rounding.value import EPS32, Node, Value, fits, is_float, pass_of, sure

Mask = Any
"""Booleans of a value's shape; True: everywhere, None: nowhere."""
CONSTANT = "constant"
"""In place of a mask along an axis: all numbers of a line are the same one."""
BITS = 2.0**24
"""A float32 holds any multiple of a unit up to so many of it."""

_EXACT = frozenset(
    "add sub add_any mul square integer_pow neg abs max min clamp convert_element_type floor ceil round sign copy "
    "stop_gradient reduce_precision".split()
)
"""Whose results are rounded once, or not at all."""
_SUMS = ("add", "sub", "add_any")
_BY_PLACE = ("slice", "dynamic_slice", "rev", "copy", "optimization_barrier", "sharding_constraint")
"""That leave every number along its axis."""


_ASKED: ContextVar[bool] = ContextVar("asked", default=False)


@contextlib.contextmanager
def asked(jaxpr: Any) -> Iterator[None]:
    """Evaluate this jaxpr with what is sure of its values, if it orders or compares any; else that costs nothing."""
    token = _ASKED.set(asks_for_order(jaxpr))
    try:
        yield
    finally:
        _ASKED.reset(token)


def asks_for_order(jaxpr: Any) -> bool:
    """Whether a jaxpr takes an index of an extreme, sorts, compares two computed floats, or rounds to integers."""
    return any(
        equation.primitive.name in ORDERING or is_comparison(equation) or _is_jump(equation)
        for equation in equations(jaxpr)
    )


def _is_jump(equation: Any) -> bool:
    before, after = (
        [jnp.issubdtype(x.aval.dtype, jnp.floating) for x in side] for side in (equation.invars, equation.outvars)
    )
    converts = equation.primitive.name == "convert_element_type" and any(before) and not any(after)
    return converts or equation.primitive.name in ("round", "floor", "ceil")


def everywhere(x: Value) -> Mask:
    """Where a float is sure, as an array that a loop carries; None of others, and where nobody asked."""
    return _filled(sure(x), x) > 0 if _ASKED.get() and is_float(x.v.dtype) else None


def alike(x: Value, axis: int) -> Mask:
    """Where numbers that are equal, on one line along ``axis``, are so in any honest arithmetic."""
    found = _at(x, axis)
    return True if isinstance(found, str) else found


def traced(node: Node, inputs: list[Value], outs: list[Value]) -> list[Value]:
    """The results of an equation with what is sure of them."""
    rule = _RULES.get(node.name) or (_one_by_one if node.name in ELEMENTWISE else None)
    if rule is None or not _ASKED.get() or not any(is_float(out.v.dtype) for out in outs):
        return [replace(out, sure=None, along=None, key=None) for out in outs]
    found = rule(node, inputs, outs)
    made = [replace(out, sure=mask, along=along, key=None) for out, (mask, along) in zip(outs, found, strict=True)]
    if rule is _one_by_one:
        return [_keyed(node, inputs, *made)]
    return made if all(x.key is None for x in inputs) else [replace(out, along=None) for out in made]


def terms(x: Value) -> Any:
    """Of numbers that are ``alike``: equal only where they are."""
    return x.v if x.key is None else x.key


def _keyed(node: Node, inputs: list[Value], out: Value) -> Value:
    """A result on elements, with a key where it is a sum of two that vary along a line, or made of what has one."""
    varying = [sum(not isinstance(_at(x, axis), str) for x in inputs) for axis in range(jnp.ndim(out.v))]
    added = node.name in _SUMS and max(varying, default=0) > 1 and sure(out) is not True
    if not added and all(x.key is None for x in inputs):
        return out
    both = sum(math.pi**number * jnp.asarray(terms(x), jnp.float64) for number, x in enumerate(inputs))
    key = jnp.broadcast_to(both, jnp.shape(out.v))
    return replace(out, key=key if sure(out) is None else jnp.where(sure(out), out.v, key))


Found = list[tuple[Mask, tuple[Any, ...] | None]]
"""Of each result where it is sure, and along each of its axes a mask or ``CONSTANT``; None: nothing more."""


def _both(*masks: Mask) -> Mask:
    if any(mask is None for mask in masks):
        return None
    arrays = [mask for mask in masks if mask is not True]
    found: Mask = arrays[0] if arrays else True
    for array in arrays[1:]:
        found = jnp.logical_and(found, array)
    return found


def _either(a: Mask, b: Mask) -> Mask:
    if a is True or b is True:
        return True
    return b if a is None else a if b is None else jnp.logical_or(a, b)


def _at(x: Value, axis: int) -> Any:
    """``CONSTANT`` or a mask."""
    along = x.along[axis] if x.along else None
    if not jnp.ndim(x.v) or jnp.shape(x.v)[axis] == 1 or isinstance(along, str):
        return CONSTANT
    return _either(sure(x), along)


def _filled(mask: Mask, x: Value) -> Any:
    """A mask as an array of the value's shape; of float32, as an operation that moves floats takes it."""
    if mask is True or mask is None:
        return jnp.full(jnp.shape(x.v), 0.0 if mask is None else 1.0, jnp.float32)
    return jnp.broadcast_to(mask, jnp.shape(x.v)).astype(jnp.float32)


def _fits(v: Any, eps: float) -> Any:
    """Whether numbers of float64 are some of a dtype with this eps, and not out of float32's range."""
    return fits(v, max(eps, EPS32)) & (jnp.abs(v) < 2.0**100)


def _one_by_one(node: Node, inputs: list[Value], outs: list[Value]) -> Found:
    (out,) = outs
    exact = node.name in _EXACT
    masks = [sure(x) for x in inputs]
    if node.name == "div":  # by a power of two
        exact, halved = True, jnp.frexp(inputs[1].v)[0]
        masks.append(jnp.abs(halved) == 0.5)
    mask = _both(*masks, _fits(out.v, node.eps)) if exact else None
    along = []
    for axis in range(jnp.ndim(out.v)):
        varying = [of for of in (_at(x, axis) for x in inputs) if not isinstance(of, str)]
        together = _both(*varying) if node.name in _SUMS else None
        along.append(CONSTANT if not varying else varying[0] if len(varying) == 1 else together)
    return [(mask, tuple(along))]


def _select(node: Node, inputs: list[Value], outs: list[Value]) -> Found:
    which, *cases = inputs
    known = sure(which)

    def picked(masks: Sequence[Mask]) -> Mask:
        if known is None or all(mask is None for mask in masks):
            return None
        each = (jnp.broadcast_to(_filled(mask, c), jnp.shape(outs[0].v)) for mask, c in zip(masks, cases, strict=True))
        return _both(known, node.bind(which.v, *each) > 0)

    along = []
    for axis in range(jnp.ndim(outs[0].v)):
        at = [_at(x, axis) for x in inputs]
        if all(isinstance(one, str) for one in at):
            along.append(CONSTANT)
        else:
            along.append(picked([True if isinstance(one, str) else one for one in at[1:]]))
    return [(picked([sure(c) for c in cases]), tuple(along))]


def _moved(node: Node, inputs: list[Value], outs: list[Value]) -> Found:
    """Numbers elsewhere: the first operand's, or all operands'."""
    count = len(inputs) if node.name in ("concatenate", "pad") else 2 if node.name == "dynamic_update_slice" else 1
    held, where = inputs[:count], inputs[count:]
    masks = [sure(x) for x in held]
    if any(mask is None for mask in masks) or any(x.s is not None for x in where):
        found: list[Mask] = [None] * len(outs)
    elif all(mask is True for mask in masks):
        found = [True] * len(outs)
    else:
        moved = node.bind(*map(_filled, masks, held), *(x.v for x in where))
        found = [array > 0 for array in (moved if isinstance(moved, list | tuple) else [moved])]
    along = _axes_of(node, inputs, outs[0]) if len(outs) == 1 and not any(x.s is not None for x in where) else None
    return [(mask, along) for mask in found]


def _axes_of(node: Node, inputs: list[Value], out: Value) -> tuple[Any, ...] | None:
    """Along the axes of a result what is known along those of the operand."""
    x, *where = inputs
    before, after = jnp.shape(x.v), jnp.shape(out.v)
    if node.name == "broadcast_in_dim":
        of = dict(zip(node.params["broadcast_dimensions"], range(len(before)), strict=True))
    elif node.name == "transpose":
        of = dict(enumerate(node.params["permutation"]))
    elif node.name in _BY_PLACE:
        of = {axis: axis for axis in range(len(after))}
    elif node.name in ("reshape", "squeeze") and [n for n in before if n > 1] == [n for n in after if n > 1]:
        of = dict(zip(*([d for d, n in enumerate(shape) if n > 1] for shape in (after, before)), strict=True))
    else:
        return None
    along: list[Any] = []
    for axis in range(len(after)):
        known: Any = _at(x, of[axis]) if axis in of else CONSTANT
        if not isinstance(known, str) and known is not None and known is not True:
            known = node.bind(_filled(known, x), *(x.v for x in where)) > 0
        along.append(known)
    return tuple(along)


def _extreme(node: Node, inputs: list[Value], outs: list[Value]) -> Found:
    (x,) = inputs
    axes = node.params["axes"]
    mask = sure(x)
    return [(mask if mask is None or mask is True else jnp.all(mask, axis=axes), None)]


def _sorted(node: Node, inputs: list[Value], outs: list[Value]) -> Found:
    axis = node.params.get("dimension", -1)
    masks = [sure(x) for x in inputs]
    whole = [m if m is None or m is True else jnp.all(m, axis=axis, keepdims=True) for m in masks]
    each = whole if node.name == "sort" else [whole[0], None]
    return [
        (m if m is None or m is True else jnp.broadcast_to(m, jnp.shape(out.v)), None)
        for m, out in zip(each, outs, strict=True)
    ]


def _unit(v: Any) -> Any:
    """The largest power of two that each number is a multiple of; infinite for zero."""
    part, exponent = jnp.frexp(jnp.where(jnp.isfinite(v), v, 0.0))
    whole = jnp.abs(part * 2.0**53).astype(jnp.int64)
    least = (whole & -whole).astype(jnp.float64)
    return jnp.where(whole == 0, jnp.inf, jnp.ldexp(least, exponent - 53))


def _sum(node: Node, inputs: list[Value], outs: list[Value]) -> Found:
    """Exact in any order where no sum of some terms is more units than a float32 has."""
    (x,), (out,) = inputs, outs
    mask = sure(x)
    if mask is None or not is_float(x.v.dtype):
        return [(mask, None)]
    axes = node.params["axes"] if "axes" in node.params else (node.params["axis"],)
    keep = node.name != "reduce_sum"
    few = jnp.sum(jnp.abs(x.v), axis=axes, keepdims=keep) <= BITS * jnp.min(_unit(x.v), axis=axes, keepdims=keep)
    whole = True if mask is True else jnp.all(mask, axis=axes, keepdims=keep)
    return [(jnp.broadcast_to(_both(whole, few), jnp.shape(out.v)) & _fits(out.v, node.eps), None)]


_BITS_OF_PASS = {"DEFAULT": 7, "HIGH": 15}


def _product(node: Node, inputs: list[Value], outs: list[Value]) -> Found:
    """As a sum of products: of two rows no partial sum is more than the product of their norms."""
    (out,) = outs
    if any(sure(x) is None for x in inputs):
        return [(None, None)]
    numbers, rows = node.params["dimension_numbers"], []
    for number, x in enumerate(inputs):
        v, axes = x.v.astype(jnp.float64), numbers[0][number]
        masks = [jnp.broadcast_to(sure(x), v.shape)]
        bits = _BITS_OF_PASS.get(pass_of(node, number))
        masks += [] if bits is None else [_fits(v, 2.0**-bits)]
        whole = jnp.all(_both(*masks), axis=axes, keepdims=True).astype(jnp.float64)
        norm = jnp.sqrt(jnp.sum(jnp.square(v), axis=axes, keepdims=True))
        rows.append((whole, norm, jnp.min(_unit(v), axis=axes, keepdims=True)))
    whole, norm, unit = (lax.dot_general(a, b, numbers) for a, b in zip(*rows, strict=True))
    return [((whole > 0) & (norm <= BITS * unit) & _fits(out.v, node.eps), None)]


def _iota(node: Node, inputs: list[Value], outs: list[Value]) -> Found:
    return [(True, None)]


_RULES: dict[str, Callable[[Node, list[Value], list[Value]], Found]] = {
    "select_n": _select,
    "reduce_sum": _sum,
    "cumsum": _sum,
    "dot_general": _product,
    "iota": _iota,
    "sort": _sorted,
    "top_k": _sorted,
    "reduce_max": _extreme,
    "reduce_min": _extreme,
}
_RULES |= dict.fromkeys(
    (
        *_BY_PLACE, "dynamic_update_slice", "gather", "reshape", "transpose", "broadcast_in_dim", "squeeze", "split",
        "stop_gradient", "concatenate", "pad",
    ),
    _moved,
)  # fmt: skip
