"""Operations that pick, sort or move numbers: the same ones elsewhere, where near values or an index may be others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from ratchet.exam.problem.rounding.recurrence import together
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
    top = jnp.max(sign * x.v - near, axis=axis, keepdims=True)
    tied = sign * x.v + near >= top
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
    following = jnp.take_along_axis(x.v, lax.top_k(x.v, min(values.shape[-1] + 1, x.v.shape[-1]))[1], axis=-1)
    return [losing(replace(x, v=values), lost), Value(v=indices, s=_tied(following, lost, x.v.shape[-1]))]


def _tied(values: Any, lost: Any, size: int) -> Any:
    """By how much an index may differ: by anything where the next value is as large, along the last axis."""
    count = lost.shape[-1]
    wide = jnp.concatenate([lost, lost[..., -1:]], axis=-1)[..., : values.shape[-1]]
    close = jnp.abs(values[..., 1:] - values[..., :-1]) <= NEAR * (wide[..., 1:] + wide[..., :-1])
    edge = jnp.zeros((*close.shape[:-1], 1), bool)
    either = jnp.concatenate([edge, close], axis=-1) | jnp.concatenate([close, edge], axis=-1)
    return jnp.where(either[..., :count], float(size), 0.0)


@RULES.of("sort")
def _sort(node: Node, inputs: list[Value]) -> list[Value]:
    axis, keys = node.params["dimension"], node.params["num_keys"]
    outs = node.bind(*(x.v for x in inputs))
    if certain(inputs[:keys]) and all(x.s is None for x in inputs):
        return [replace(x, v=out) for x, out in zip(inputs, outs, strict=True)]
    place = lax.broadcasted_iota(jnp.int32, inputs[0].v.shape, axis)
    *_, order = lax.sort((*(x.v for x in inputs), place), dimension=axis, num_keys=keys, is_stable=True)
    lost = [jnp.take_along_axis(loss(x), order, axis=axis) for x in inputs]
    first = jnp.moveaxis(outs[0].astype(jnp.float64), axis, -1)
    unsure = jnp.moveaxis(_tied(first, jnp.moveaxis(lost[0], axis, -1), 1), -1, axis)
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
    found = [Value(v=o, s=a, eps=eps, exact=exact, spread=spread, early=early) for o, a in zip(outs, lost, strict=True)]
    return found if several else together(found[0], held, common)


@RULES.of("reduce_precision")
def _reduced(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    return replace(x, eps=max(x.eps, 2.0 ** -node.params["mantissa_bits"]), exact=False, early=None)


def _astray(node: Node, unsure: list[Any], out: Any) -> Any:
    """Which elements of what is taken by indices may be others."""
    if node.name != "gather":
        return jnp.any(jnp.stack([jnp.any(s > 0) for s in unsure]))
    off = jnp.any(unsure[0] > 0, axis=-1)
    for dimension in sorted(node.params["dimension_numbers"].offset_dims):
        off = jnp.expand_dims(off, dimension)
    return jnp.broadcast_to(off, jnp.shape(out))
