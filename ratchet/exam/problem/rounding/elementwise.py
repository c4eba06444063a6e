"""Operations whose every element is of the elements at the same place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from ratchet.exam.problem.rounding.recurrence import decayed, together
from ratchet.exam.problem.rounding.value import (
    EPS32,
    FUNCTION,
    NEAR,
    RMS,
    Node,
    Rules,
    Value,
    certain,
    earlier,
    eps_of,
    finite,
    is_float,
    losing,
    loss,
    no_nan,
    rounded,
    sure,
    variance_of,
    with_more,
)

RULES = Rules()

SATURATING = {jnp.dtype(jnp.float4_e2m1fn): float(jnp.finfo(jnp.float4_e2m1fn).max)}
"""Dtypes without an infinity and a NaN, and what XLA's conversion gives for all that is larger than their largest."""

FAR = 4.0
"""Losses that an element is off now and then: of a normal distribution one in sixteen thousand."""
MOST_SPREAD = 40.0
"""By how much an exponent may be off, at most: beyond e^40 times the value nothing is left that can be compared."""

ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp "
    "convert_element_type cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow "
    "is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter not or polygamma population_count pow "
    "real rem round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub "
    "tan tanh xor copy stop_gradient reduce_precision clz conj complex igamma igammac le_to lt_to eq_to".split()
)
"""Operations whose every element is of the elements at the same place."""

SMOOTH = frozenset(
    "log log1p expm1 tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh sqrt rsqrt cbrt logistic erf erfc "
    "erf_inv lgamma digamma pow atan2".split()
)

BESIDE_ONE = frozenset("expm1 sinh asinh atanh".split())
"""Functions that Pallas has no operation for on a TPU: a kernel computes ``exp(x) - 1``, and loses roundings of one."""


@RULES.of("convert_element_type")
def _convert(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    out = node.bind(x.v)
    if is_float(x.v.dtype):
        if not is_float(out.dtype):
            return _jump(node, inputs)
        most = SATURATING.get(node.equation.outvars[0].aval.dtype)
        out = out if most is None else jnp.clip(out, -most, most)
        narrower = node.eps > eps_of(node.equation.invars[0].aval.dtype)
        return replace(
            x, v=out, eps=max(x.eps, node.eps), exact=x.exact and not narrower, whole=x.whole and not narrower
        )
    return replace(x, v=out, eps=EPS32 if x.exact else node.eps, whole=x.v.dtype == bool)


@RULES.of("select_n")
def _select(node: Node, inputs: list[Value]) -> Value:
    which, *cases = inputs
    out = node.bind(which.v, *(c.v for c in cases))
    lost = variance = None
    if which.s is None and any(c.variance is not None for c in cases):
        each = [with_more(c, 0.0) for c in cases]
        variance = node.bind(which.v, *(jnp.broadcast_to(v, jnp.shape(out)) for v in each))
    elif any(c.s is not None for c in cases):
        lost = node.bind(which.v, *(jnp.broadcast_to(earlier(c), jnp.shape(out)) for c in cases))
    if which.s is not None:
        filled = [jnp.where(jnp.isfinite(c.v), c.v, 0).astype(jnp.float64) for c in cases]
        apart = jnp.max(jnp.stack(filled), axis=0) - jnp.min(jnp.stack(filled), axis=0)
        lost = (0.0 if lost is None else lost) + jnp.where(which.s > 0, apart, 0.0)
    early = None
    if any(c.early is not None for c in cases):  # what is put in place of a product was no operand's factor
        each = [0.0 if c.early is None else c.early for c in cases]
        early = node.bind(which.v, *(jnp.broadcast_to(jnp.asarray(e, jnp.float32), jnp.shape(out)) for e in each))
    return Value(
        v=out,
        s=lost,
        variance=variance,
        eps=max(c.eps for c in cases),
        exact=all(x.exact for x in inputs),
        spread=all(c.spread for c in cases),
        early=early,
    )


@RULES.of("neg")
def _negate(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    return replace(x, v=node.bind(x.v), common=None if x.common is None else -x.common)


@RULES.of("add", "sub", "add_any")
def _add(node: Node, inputs: list[Value]) -> Value:
    out = node.bind(*(x.v for x in inputs))
    if not is_float(out.dtype):
        return _integer(node, inputs, out)
    sign = -1 if node.name == "sub" else 1
    common = [s * x.common for s, x in zip((1, sign), inputs, strict=True) if x.common is not None]
    found = rounded(node, out, sum(map(variance_of, inputs)), inputs)
    logs = next((x.logs for x in inputs if x.logs is not None and jnp.shape(x.logs) == jnp.shape(out)), None)
    return together(found, inputs, sum(common) if common else None, logs)


@RULES.of("mul")
def _multiply(node: Node, inputs: list[Value]) -> Value:
    a, b = inputs
    out = node.bind(a.v, b.v)
    if not is_float(out.dtype):
        return _integer(node, inputs, out)
    a, b, common, logs = decayed(a, b, out)
    variance = variance_of(_folded(a, b)) * jnp.square(b.v) + variance_of(_folded(b, a)) * jnp.square(a.v)
    return together(rounded(node, out, no_nan(variance), inputs), inputs, common, logs)


def _folded(x: Value, factor: Value) -> Value:
    """``x`` with the operand of its product rounded again, if the factor can be multiplied into that."""
    if x.early is None or not (factor.spread or factor.v.size < x.v.size):
        return x
    return losing(x, variance=with_more(x, x.early))


@RULES.of("div")
def _divide(node: Node, inputs: list[Value]) -> Value:
    a, b = inputs
    if not is_float(a.v.dtype):
        return _integer(node, inputs, node.bind(a.v, b.v))
    out = node.bind(a.v, b.v)
    variance = (variance_of(_folded(a, b)) + variance_of(b) * jnp.square(out)) / jnp.square(b.v)
    return rounded(node, out, no_nan(variance), inputs)


@RULES.of("square")
def _square(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    return _multiply(replace(node, bind=lambda a, b: a * b), [x, x])


@RULES.of("integer_pow")
def _power(node: Node, inputs: list[Value]) -> Value:
    """A product of several factors: it is rounded to its own dtype after each, as a chain of multiplications is."""
    found = differences(node, inputs)
    if not is_float(found.v.dtype):
        return found
    between = max(abs(node.params["y"]).bit_length() + abs(node.params["y"]).bit_count() - 3, 0)
    own = between * jnp.square(RMS * found.eps * jnp.abs(found.v))
    return losing(found, variance=finite(found.v, with_more(found, own)))


@RULES.of("exp", "exp2")
def _exponential(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    out = node.bind(x.v)
    scale = 1.0 if node.name == "exp" else math.log(2)
    # exp(x) = 2^(x log2 e): the argument is rounded once more. A large loss of it is no longer linear.
    spread = jnp.minimum(jnp.sqrt(variance_of(x) * scale**2 + (RMS * EPS32 * FUNCTION) ** 2), MOST_SPREAD)
    wide = jnp.expm1(spread.astype(jnp.float32))
    return replace(rounded(node, out, jnp.square(no_nan(out * wide)), inputs), spread=x.spread)


def differences(node: Node, inputs: list[Value]) -> Value:
    """Any function of one element of each operand: how far it moves if one of them moves by its loss.

    Or by several of it, for each: beside where it is flat, as a saturated ``tanh`` is, it may be steep.
    """
    out = node.bind(*(x.v for x in inputs))
    if certain(inputs) and not is_float(out.dtype):
        return Value(v=out, exact=True)
    if not is_float(out.dtype):
        return _integer(node, inputs, out)
    variance: Any = jnp.square(RMS * EPS32 * FUNCTION * jnp.abs(out)) if node.name in SMOOTH else 0.0
    variance = variance + (2 * RMS * EPS32) ** 2 if node.name in BESIDE_ONE else variance
    for place, x in enumerate(inputs):
        if not is_float(x.v.dtype):
            continue
        step = loss(x)
        far = jnp.maximum(
            _farthest(node, inputs, place, step, out), _farthest(node, inputs, place, FAR * step, out) / FAR
        )
        variance = variance + jnp.square(far)
    return rounded(node, out, variance, inputs)


def _farthest(node: Node, inputs: Sequence[Value], place: int, step: Any, out: Any) -> Any:
    """How far ``out`` moves at most, in float64, if the operand at ``place`` moves by ``step``, up or down."""
    far: Any = 0.0
    for by in (step, -step):
        moved = node.bind(*(x.v + by if n == place else x.v for n, x in enumerate(inputs)))
        apart = moved - out if is_float(out.dtype) else moved.astype(jnp.float64) - out.astype(jnp.float64)
        far = jnp.maximum(far, jnp.nan_to_num(jnp.abs(apart)))
    return far


@RULES.of("max", "min", "clamp")
def _pick(node: Node, inputs: list[Value]) -> Value:
    out = node.bind(*(x.v for x in inputs))
    if certain(inputs):
        return Value(v=out, exact=all(x.exact for x in inputs), spread=all(x.spread for x in inputs))
    inexact = [(place, x) for place, x in enumerate(inputs) if not x.exact]
    lost = jnp.zeros(jnp.shape(out))
    for place, x in inexact:
        step = loss(replace(x, eps=0.0)).astype(x.v.dtype)
        for times in (
            (1, NEAR) if is_float(x.v.dtype) else (1,)
        ):  # where the other operand is picked nothing moves, and a little further on it does
            lost = jnp.maximum(lost, _farthest(node, inputs, place, times * step, out) / times)
    return Value(v=out, s=finite(out, lost), eps=max(x.eps for _, x in inexact))


@RULES.of("real", "imag")
def _part(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    return Value(v=node.bind(x.v), s=loss(x))


@RULES.of("abs")
def _absolute(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    return replace(x, v=node.bind(x.v), early=None)


@RULES.of("floor", "ceil", "round", "sign", "is_finite")
def _jump(node: Node, inputs: list[Value]) -> Value:
    """A function with steps: it may be off by a step where its argument is near to one."""
    (x,) = inputs
    out = node.bind(x.v)
    if certain(inputs):
        return Value(v=out, exact=True, eps=0.0)
    if not x.eps:
        return replace(x, v=out)
    if x.whole:
        return Value(v=out, s=jnp.round(earlier(x)), eps=0.0)
    near = NEAR * loss(x) if sure(x) is None else jnp.where(sure(x), 0.0, NEAR * loss(x))
    high, low = (node.bind(at).astype(jnp.float64) for at in (x.v + near, x.v - near))
    far = jnp.abs(high - low)  # what an integer makes of NaN and infinity is nobody's business
    return Value(v=out, s=jnp.where(jnp.isfinite(x.v), far, 0.0 if is_float(out.dtype) else jnp.inf), eps=0.0)


@RULES.of("lt", "le", "gt", "ge", "eq", "ne", "lt_to", "le_to", "eq_to")
def _compare(node: Node, inputs: list[Value]) -> Value:
    a, b = inputs
    out = node.bind(a.v, b.v)
    if certain(inputs) or node.equation.invars[0] is node.equation.invars[1]:
        return Value(v=out, exact=True)
    apart = jnp.abs(a.v.astype(jnp.float64) - b.v.astype(jnp.float64))
    near = NEAR * jnp.sqrt(variance_of(a) + variance_of(b)) if is_float(a.v.dtype) else loss(a) + loss(b)
    if sure(a) is not None and sure(b) is not None:
        near = jnp.where(jnp.logical_and(sure(a), sure(b)), 0.0, near)
    return Value(v=out, s=jnp.where(apart <= near, 1.0, 0.0) * (near > 0))


@RULES.of("and", "or", "xor", "not")
def _logic(node: Node, inputs: list[Value]) -> Value:
    out = node.bind(*(x.v for x in inputs))
    if certain(inputs):
        return Value(v=out, exact=True)
    return Value(v=out, s=sum(earlier(x) for x in inputs) + jnp.zeros(jnp.shape(out)))


def _integer(node: Node, inputs: list[Value], out: Any) -> Value:
    """Integer arithmetic: exact, unless an operand may be another integer."""
    if certain(inputs):
        return Value(v=out, exact=True)
    lost: Any = jnp.zeros(jnp.shape(out))
    for place, x in enumerate(inputs):
        if x.s is None or x.v.dtype == bool:
            continue
        lost = jnp.maximum(lost, _farthest(node, inputs, place, jnp.ceil(x.s).astype(x.v.dtype), out))
    return Value(v=out, s=lost)
