"""Operations that pick, sort or move numbers: the same ones elsewhere, where near values or an index may be others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from ratchet.exam.problem.rounding.recurrence import together
from ratchet.exam.problem.rounding.ties import alike, terms
from ratchet.exam.problem.rounding.value import (
    NEAR,
    Node,
    Parts,
    Rules,
    Value,
    certain,
    earlier,
    finite,
    is_float,
    losing,
    loss,
    sure,
)

RULES = Rules()

_ALL = ("concatenate", "pad", "optimization_barrier")
"""Operations of which every operand holds numbers."""
_FIRST = (
    "dynamic_slice", "gather", "slice", "reshape", "transpose", "broadcast_in_dim", "squeeze", "rev", "copy", "split",
    "stop_gradient", "sharding_constraint",
)  # fmt: skip
"""Operations of which the first operand holds the numbers; any others say where."""
_ONE_TO_ONE = ("reshape", "transpose", "slice", "squeeze", "rev", "copy")
"""Operations after which a number is still one of a product's."""


@RULES.of("reduce_max", "reduce_min", "cummax", "cummin", "reduce_window_max", "reduce_window_min")
def _extreme(node: Node, inputs: list[Value]) -> Value:
    return extreme(node, inputs).whole


def extreme(node: Node, inputs: list[Value]) -> Parts:
    """The extreme, and that of all elements as far off as they may be."""
    (x,) = inputs
    up = "max" in node.name
    arrays = [node.bind(x.v)]
    if x.s is not None:
        arrays.append(node.bind(x.v + (1 if up else -1) * jnp.asarray(loss(x), x.v.dtype)))

    def finish(arrays: list[Any]) -> Value:
        out, *moved = arrays
        if not moved:
            return replace(x, v=out, early=None)
        far = jnp.abs(moved[0] - out).astype(jnp.float64)
        return Value(v=out, s=finite(out, far), eps=x.eps)

    return Parts(arrays=arrays, finish=finish, join=jnp.maximum if up else jnp.minimum)


@RULES.of("reduce_and", "reduce_or")
def _reduce_logic(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    out = node.bind(x.v)
    return Value(v=out, exact=True) if x.s is None else Value(v=out, s=jnp.max(x.s, axis=node.params["axes"]))


@RULES.of("argmax", "argmin")
def _argument(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    out = node.bind(x.v)
    if x.exact or not is_float(x.v.dtype):
        return Value(v=out, exact=True)
    (axis,) = node.params["axes"]
    sign = 1 if node.name == "argmax" else -1
    near, place = NEAR * loss(x), lax.broadcasted_iota(jnp.int32, x.v.shape, axis)
    if sure(x) is not None:
        near = jnp.where(sure(x), 0.0, near)
    top = jnp.max(sign * x.v - near, axis=axis, keepdims=True)
    tied = sign * x.v + near >= top
    if (same := alike(x, axis)) is not None:  # equal ones of those are equal: the first is taken
        is_first = place == jnp.expand_dims(out, axis).astype(jnp.int32)
        known, best = jnp.broadcast_to(same, x.v.shape), jnp.max(sign * x.v, axis=axis, keepdims=True)
        of_first = jnp.any(is_first & known, axis=axis, keepdims=True)
        key = terms(x)
        equal = (sign * x.v == best) & (key == jnp.max(jnp.where(is_first, key, -jnp.inf), axis=axis, keepdims=True))
        tied &= is_first | ~(known & of_first & equal)
    last = jnp.max(jnp.where(tied, place, -1), axis=axis)
    first = jnp.min(jnp.where(tied, place, x.v.shape[axis]), axis=axis)
    return Value(v=out, s=(last - first).astype(jnp.float64))


@RULES.of("top_k")
def _top(node: Node, inputs: list[Value]) -> list[Value]:
    (x,) = inputs
    values, indices = node.bind(x.v)
    if x.exact or not is_float(x.v.dtype):
        return [replace(x, v=values), Value(v=indices, exact=True)]
    lost = jnp.take_along_axis(loss(x), indices, axis=-1)
    each = (loss(x), alike(x, x.v.ndim - 1), terms(x))
    return [losing(replace(x, v=values), lost), Value(v=indices, s=_tied_top(x.v, *each, indices))]


def _tied_top(v: Any, lost: Any, same: Any, key: Any, indices: Any) -> Any:
    """By how much an index of the largest may differ: by anything where the next value is as large."""
    count, size = indices.shape[-1], v.shape[-1]
    known = jnp.zeros(v.shape, bool) if same is None else jnp.broadcast_to(same, v.shape)
    some = lax.top_k(v, min(count + 1, size))[1]
    taken, near, kept, own = (jnp.take_along_axis(a, some, axis=-1) for a in (v, lost, known, key))
    # Of those that follow the last one, any that may be as large as it.
    last, far = taken[..., -1:], near[..., -1:]
    other = ~(known & (key == own[..., -1:])) & (jnp.abs(v - last) <= NEAR * (lost + far))
    beyond = jnp.sum(other, axis=-1, keepdims=True) > jnp.sum(
        jnp.take_along_axis(other, some, axis=-1), axis=-1, keepdims=True
    )
    return jnp.where(_unsure(taken, near, kept, own, beyond=beyond)[..., :count], float(size), 0.0)


def _unsure(values: Any, lost: Any, known: Any, key: Any, *, beyond: Any) -> Any:
    """Whose place may be another, of sorted values along the last axis: where a neighbour may be as large.

    Equal ones that are so in any honest arithmetic keep their order, unless another may come between; ``beyond``:
    whether one that is not here may be as large as the last.
    """
    close = jnp.abs(values[..., 1:] - values[..., :-1]) <= NEAR * (lost[..., 1:] + lost[..., :-1])
    kept = known[..., 1:] & known[..., :-1] & (values[..., 1:] == values[..., :-1])
    kept &= key[..., 1:] == key[..., :-1]
    bad, edge = close & ~kept, jnp.zeros((*close.shape[:-1], 1), bool)
    either = jnp.concatenate([edge, bad], axis=-1) | jnp.concatenate([bad, edge], axis=-1)
    either = either.at[..., -1:].set(either[..., -1:] | beyond)
    # Runs of equal ones share what one of them may do.
    place = lax.broadcasted_iota(jnp.int32, values.shape, values.ndim - 1)
    begins = jnp.concatenate([~edge, ~kept], axis=-1)
    ends = jnp.concatenate([~kept, ~edge], axis=-1)
    axis, far = values.ndim - 1, values.shape[-1]
    start = lax.cummax(jnp.where(begins, place, -1), axis=axis)
    end = lax.cummin(jnp.where(ends, place, far), axis=axis, reverse=True)
    before = lax.cummax(jnp.where(either, place, -1), axis=axis) >= start
    after = lax.cummin(jnp.where(either, place, far), axis=axis, reverse=True) <= end
    return before | after


@RULES.of("sort")
def _sort(node: Node, inputs: list[Value]) -> list[Value]:
    axis, keys = node.params["dimension"], node.params["num_keys"]
    outs = node.bind(*(x.v for x in inputs))
    ordered = node.params["is_stable"] or len(inputs) == keys
    if ordered and certain(inputs[:keys]) and all(x.s is None for x in inputs):
        return [replace(x, v=out) for x, out in zip(inputs, outs, strict=True)]
    place = lax.broadcasted_iota(jnp.int32, inputs[0].v.shape, axis)
    *_, order = lax.sort((*(x.v for x in inputs), place), dimension=axis, num_keys=keys, is_stable=True)
    lost = [jnp.take_along_axis(loss(x), order, axis=axis) for x in inputs]
    first = jnp.moveaxis(outs[0].astype(jnp.float64), axis, -1)
    same = alike(inputs[0], axis) if ordered else None
    known = jnp.zeros(order.shape, bool) if same is None else jnp.broadcast_to(same, order.shape)
    each = (lost[0], *(jnp.take_along_axis(a, order, axis=axis) for a in (known, terms(inputs[0]))))
    whole = _unsure(first, *(jnp.moveaxis(a, axis, -1) for a in each), beyond=False)
    unsure = jnp.moveaxis(whole.astype(jnp.float64), -1, axis)
    found = []
    for number, (x, out, s) in enumerate(zip(inputs, outs, lost, strict=True)):
        size = 0.0 if number < keys else jnp.max(jnp.abs(x.v)).astype(jnp.float64)
        found.append(losing(replace(x, v=out, exact=False), s + size * unsure))
    return found


@RULES.of("dynamic_update_slice", *_FIRST, *_ALL)
def _places(node: Node, inputs: list[Value]) -> Value | list[Value]:
    count = len(inputs) if node.name in _ALL else 2 if node.name == "dynamic_update_slice" else 1
    held, where = inputs[:count], inputs[count:]
    out = node.bind(*(x.v for x in inputs))
    several = isinstance(out, list | tuple)
    outs = list(out) if several else [out]
    lost: list[Any] = [None] * len(outs)
    if any(x.s is not None for x in held):
        moved = node.bind(*(earlier(x) for x in held), *(x.v for x in where))
        lost = [jnp.nan_to_num(a) for a in (list(moved) if several else [moved])]
    unsure = [x.s for x in where if x.s is not None]
    if unsure:  # an index may be another
        off = _astray(node, unsure, outs[0])
        size = 2 * jnp.max(jnp.abs(jnp.where(jnp.isfinite(held[0].v), held[0].v, 0)).astype(jnp.float64))
        lost = [jnp.where(off, size, 0.0) + (0.0 if a is None else a) + 0 * o for a, o in zip(lost, outs, strict=True)]
    first = held[0]
    early = None if first.early is None or node.name not in _ONE_TO_ONE else node.bind(first.early)
    common = (
        None if first.common is None or len(held) > 1 or several else node.bind(first.common, *(x.v for x in where))
    )
    repeats = node.name == "broadcast_in_dim" and first.v.size < out.size
    eps, exact = max(x.eps for x in held), all(x.exact for x in inputs)
    spread = repeats or all(x.spread for x in held)
    whole = all(x.whole for x in held)
    found = [
        Value(v=o, s=a, eps=eps, exact=exact, spread=spread, whole=whole, early=early)
        for o, a in zip(outs, lost, strict=True)
    ]
    return found if several else together(found[0], held, common)


@RULES.of("reduce_precision")
def _reduced(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    return replace(x, eps=max(x.eps, 2.0 ** -node.params["mantissa_bits"]), exact=False, whole=False, early=None)


def _astray(node: Node, unsure: list[Any], out: Any) -> Any:
    """Which elements of what is taken by indices may be others."""
    if node.name != "gather":
        return jnp.any(jnp.stack([jnp.any(s > 0) for s in unsure]))
    off = jnp.any(unsure[0] > 0, axis=-1)
    for dimension in sorted(node.params["dimension_numbers"].offset_dims):
        off = jnp.expand_dims(off, dimension)
    return jnp.broadcast_to(off, jnp.shape(out))
