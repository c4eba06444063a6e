"""Sums, products and scatters: terms that are added in float32, in any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from ratchet.exam.problem.rounding.value import (
    EPS32,
    LEAST,
    RMS,
    TINY,
    Node,
    Parts,
    Rules,
    Value,
    certain,
    earlier,
    eps_of,
    is_float,
    losing,
    no_nan,
    pass_of,
    rounded,
    variance_of,
    with_more,
)

RULES = Rules()

PASSES = {"DEFAULT": 2.0**-7, "HIGH": 2.0**-15, "HIGHEST": EPS32}
"""Eps of what a product keeps of a float32 operand: one bfloat16, the sum of two, all of it."""
_ANY_INTEGER = 2.0**31
"""What an int32 may be off by where nothing is known of it."""
_LARGEST = 2.0**48
"""Of a row in ``_in_float32``: two billion products of two such are a float32 number."""


@RULES.of("reduce_sum", "cumsum", "reduce_window_sum")
def _sum(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    if not is_float(x.v.dtype):
        out = node.bind(x.v)
        return Value(v=out, exact=True) if certain(inputs) else Value(v=out, s=node.bind(earlier(x)))
    return total(node, inputs).whole


def total(node: Node, inputs: list[Value]) -> Parts:
    """A sum of floats, the squares of what is lost in each term, and how far terms are off that are rounded alike."""
    (x,) = inputs
    count, eps = _terms(node, x.v.shape) * node.parts, EPS32 if node.name == "reduce_sum" else node.eps
    lost = jnp.where(jnp.isfinite(x.v), variance_of(x) + _each(count, eps) * jnp.square(x.v), 0.0)
    off = _alike(x)
    arrays = [node.bind(x.v), node.bind(lost), *([] if off is None else [node.bind(off)])]

    def finish(arrays: list[Any]) -> Value:
        out, squares, *moved = arrays
        for one in moved:
            squares = _together(squares, jnp.square(one))
        return replace(
            rounded(node, out, squares + no_nan(_beside(out, count, eps)), inputs), whole=x.whole and node.eps <= EPS32
        )

    return Parts(arrays=arrays, finish=finish)


@RULES.of("dot_general", "conv_general_dilated")
def _product(node: Node, inputs: list[Value]) -> Value:
    if not is_float(node.equation.outvars[0].aval.dtype):
        out = node.bind(*(x.v for x in inputs))
        return Value(v=out, exact=True) if certain(inputs) else _product_of_integers(node, inputs, out)
    return product(node, inputs).whole


def product(node: Node, inputs: list[Value]) -> Parts:
    """A product of floats, as ``total`` of its terms."""
    a, b = (_operand(node, x, n) for n, x in enumerate(inputs))
    if node.name == "dot_general":
        (contracted, _), _ = node.params["dimension_numbers"]
        count = math.prod(a.v.shape[axis] for axis in contracted) * node.parts
    else:
        features = node.params["dimension_numbers"].rhs_spec[0]
        count = b.v.size // b.v.shape[features]
    each, own = _each(count), (RMS * EPS32) ** 2
    a2, b2 = jnp.square(a.v), jnp.square(b.v)
    plain = [x.s is None and x.eps <= EPS32 for x in (a, b)]
    if all(plain):
        squares = _in_float32(node, a2, b2)
    elif plain[1]:
        squares = _in_float32(node, variance_of(a) + (own + each) * a2, b2)
    elif plain[0]:
        squares = _in_float32(node, a2, variance_of(b) + (own + each) * b2)
    else:
        squares = _in_float32(node, variance_of(a) + each * a2, b2) + _in_float32(node, a2, variance_of(b))
    off_a, off_b = map(_alike, (a, b))
    moved = [] if off_a is None else [_in_float32(node, off_a, b.v)]
    moved += [] if off_b is None else [_in_float32(node, a.v, off_b)]

    def finish(arrays: list[Any]) -> Value:
        out, squares, *moved = arrays
        terms, squares = squares, (2 * own + each if all(plain) else 1.0) * squares
        for one in moved:
            squares = _together(squares, jnp.square(one))
        found = rounded(node, out, squares + _beside(out, count), inputs)
        narrow = max(eps_of(v.aval.dtype) for v in node.equation.invars)
        early = 2 * (RMS * narrow) ** 2 * terms if all(plain) and narrow > EPS32 else None
        return replace(found, early=early, spread=False)

    return Parts(arrays=[node.bind(*node.paired(a.v, b.v)), squares, *moved], finish=finish)


def _in_float32(node: Node, a: Any, b: Any) -> Any:
    """The product of what losses are made of: two float32 ones take the time of one in float64, and are exact enough.

    Each row is scaled first: squares of float32 numbers leave its range, and what is 60 digits less than the largest of
    its row does not count. Convolutions and complex numbers stay as they are.
    """
    if node.name != "dot_general" or jnp.iscomplexobj(a) or jnp.iscomplexobj(b):
        return node.bind(a, b)
    a, b = node.paired(a, b)
    numbers = node.params["dimension_numbers"]
    (a, scale_a), (b, scale_b) = (_scaled(x, axes) for x, axes in zip((a, b), numbers[0], strict=True))
    return lax.dot_general(a, b, numbers, precision=lax.Precision.HIGHEST) * lax.dot_general(scale_a, scale_b, numbers)


def _scaled(x: Any, axes: Sequence[int]) -> tuple[Any, Any]:
    """Float32, and what it was divided by: one number for all that is contracted, or 1 where that is zero."""
    largest = jnp.max(jnp.where(jnp.isfinite(x), jnp.abs(x), 0.0), axis=axes, keepdims=True, initial=0.0)
    scale = jnp.where(largest / _LARGEST > 0, largest / _LARGEST, 1.0)
    return (x / scale).astype(jnp.float32), scale


def _product_of_integers(node: Node, inputs: list[Value], out: Any) -> Value:
    """Of integers that a rounding made, as rows quantised to int8: what one is off by, times the other factor."""
    params = node.params | {"preferred_element_type": jnp.dtype("float64")}
    a, b = inputs
    squares: Any = 0.0
    for of, other in ((a, b), (b, a)):
        if of.s is not None:
            off = jnp.square(jnp.nan_to_num(of.s.astype(jnp.float64), posinf=_ANY_INTEGER))
            factors = jnp.square(other.v.astype(jnp.float64))
            pair = (off, factors) if of is a else (factors, off)
            squares = squares + node.equation.primitive.bind(*pair, **params)
    return Value(v=out, s=jnp.sqrt(squares))


def _operand(node: Node, x: Value, number: int) -> Value:
    """An operand of a product as the matrix unit takes it."""
    v = x.v.astype(jnp.float64) if is_float(node.equation.outvars[0].aval.dtype) else x.v
    if not (asked := pass_of(node, number)):
        return replace(x, v=v)
    eps = PASSES.get(asked, PASSES["DEFAULT"])
    if eps <= EPS32 or (x.exact and x.eps > EPS32):
        return replace(x, v=v)
    kept = v.astype(jnp.bfloat16).astype(jnp.float64)
    kept = kept + (v - kept).astype(jnp.bfloat16) if eps < PASSES["DEFAULT"] else kept
    lost = jnp.where(kept == v, 0.0, RMS * eps * jnp.abs(v))  # a narrow value in a wide dtype loses nothing
    common = kept - v + (0.0 if x.common is None else x.common)  # equal ones lose the same
    return losing(replace(x, v=v, common=common), variance=with_more(x, jnp.square(lost)))


def _each(count: int, eps: float = EPS32) -> float:
    """Of a sum of ``count`` terms in the worst order: the share of each term's square that is lost, n u^2 / 6, where
    ``u`` is half of eps: see the package.
    """
    return eps**2 * max(count, 2) / 24


def _beside(out: Any, count: int, eps: float = EPS32) -> Any:
    """The variance that is lost beside that: n u^2 / 9 of the sum's square, and what each term flushes to zero."""
    return jnp.square(eps * out) * count / 36 + count * TINY**2


def _alike(x: Value) -> Any:
    """By how much each term is off that others are, too; None if by nothing.

    A narrow dtype rounds equal terms the same way, and a decay of a loop is off for all that share it.
    """
    if x.eps <= EPS32 or x.exact:
        return None if x.common is None else jnp.where(jnp.isfinite(x.v), x.common, 0.0).astype(x.v.dtype)
    v = jnp.where(jnp.isfinite(x.v), x.v, 0.0)
    narrow = lax.reduce_precision(v, exponent_bits=11, mantissa_bits=round(-math.log2(x.eps)))
    if least := LEAST.get(x.eps):
        unit = x.eps * least
        narrow = jnp.where(jnp.abs(v) < least, jnp.round(v / unit) * unit, narrow)
    return narrow - v + (0.0 if x.common is None else x.common)


def _together(squares: Any, alike: Any) -> Any:
    """The variance of a sum: as of independent terms, unless they add up to more than twice what chance makes of it."""
    return jnp.where(alike > 4 * squares, alike, squares)


def _terms(node: Node, shape: Sequence[int]) -> int:
    if node.name == "cumsum":
        return shape[node.params["axis"]]
    if node.name == "reduce_window_sum":
        return math.prod(node.params["window_dimensions"])
    return math.prod(shape[axis] for axis in node.params["axes"])


@RULES.of("scatter")
def _scatter(node: Node, inputs: list[Value]) -> Value:
    x, where, updates = inputs
    out = node.bind(x.v, where.v, updates.v)
    lost = None
    if x.s is not None or updates.s is not None:
        lost = node.bind(earlier(x), where.v, earlier(updates))
    if where.s is not None:
        size = jnp.max(jnp.abs(updates.v).astype(jnp.float64)) + jnp.max(jnp.abs(x.v).astype(jnp.float64))
        lost = earlier(x) + jnp.where(jnp.any(where.s > 0), size, 0.0)
    return Value(v=out, s=lost, eps=max(x.eps, updates.eps), exact=all(y.exact for y in inputs))


@RULES.of("scatter-add", "scatter_add")
def _scatter_add(node: Node, inputs: list[Value]) -> Value:
    x, where, updates = inputs
    out = node.bind(x.v, where.v, updates.v)
    if certain(inputs) and not is_float(out.dtype):
        return Value(v=out, exact=True)
    if is_float(out.dtype):
        count = max(2, updates.v.size // max(1, x.v.size // max(1, x.v.shape[0])))
        each = _each(count, node.eps) * jnp.square(updates.v)
        squares = node.bind(variance_of(x), where.v, variance_of(updates) + each)
        lost = jnp.sqrt(squares + _beside(out, count, node.eps))
    else:
        lost = node.bind(earlier(x), where.v, earlier(updates))
    if where.s is not None:  # each of these may go elsewhere
        lost = lost + jnp.sum(jnp.any(where.s > 0, axis=-1)) * jnp.max(jnp.abs(updates.v).astype(jnp.float64))
    return Value(v=out, s=lost, eps=max(node.eps, EPS32))
