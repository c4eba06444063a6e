"""Operations that move numbers: the same ones elsewhere, unless an index may be another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from ratchet.exam.problem.rounding.rules import Node, Rules
from ratchet.exam.problem.rounding.value import Value, earlier

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
    repeats = node.name == "broadcast_in_dim" and first.v.size < out.size
    eps, exact = max(x.eps for x in held), all(x.exact for x in inputs)
    spread = repeats or all(x.spread for x in held)
    found = [Value(v=o, s=a, eps=eps, exact=exact, spread=spread, early=early) for o, a in zip(outs, lost, strict=True)]
    return found if several else found[0]


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
