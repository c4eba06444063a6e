"""Operations that move numbers: the same ones elsewhere, unless an index may be another."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ratchet.candidate.rounding.rules import Node, Rules
from ratchet.candidate.rounding.value import Value, earlier

RULES = Rules()

_MOVED = {
    "dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1, "slice": 1, "reshape": 1, "transpose": 1,
    "broadcast_in_dim": 1, "squeeze": 1, "expand_dims": 1, "rev": 1, "copy": 1, "copy_p": 1, "split": 1,
    "stop_gradient": 1, "sharding_constraint": 1, "reduce_precision": 1,
}  # fmt: skip
"""How many of an operation's operands hold the numbers; the others say where."""


@RULES.of("concatenate", "pad", "optimization_barrier", *_MOVED)
def _places(node: Node, inputs: list[Value]) -> Value | list[Value]:
    count = _MOVED.get(node.name, len(inputs))
    held, where = inputs[:count], inputs[count:]
    out = node.bind(*(x.v for x in inputs)) if node.name != "reduce_precision" else inputs[0].v
    several = isinstance(out, list | tuple)
    outs = list(out) if several else [out]
    lost: list[Any] = [None] * len(outs)
    if any(x.s is not None for x in held):
        parts = [earlier(x) for x in held]
        moved = parts[0] if node.name == "reduce_precision" else node.bind(*parts, *(x.v for x in where))
        lost = [jnp.nan_to_num(a) for a in (list(moved) if several else [moved])]
    unsure = [x.s for x in where if x.s is not None]
    if unsure:  # an index may be another
        off = _astray(node, unsure, outs[0])
        size = 2 * jnp.max(jnp.abs(jnp.where(jnp.isfinite(held[0].v), held[0].v, 0)).astype(jnp.float64))
        lost = [jnp.where(off, size, 0.0) + (0.0 if a is None else a) + 0 * o for a, o in zip(lost, outs, strict=True)]
    eps = max(x.eps for x in held)
    if node.name == "reduce_precision":
        eps = max(eps, 2.0 ** -node.params["mantissa_bits"])
    early = inputs[0].early
    if early is not None and node.name in ("reshape", "transpose", "slice", "squeeze", "expand_dims", "rev"):
        early = node.bind(early)
    elif node.name != "copy":
        early = None
    spread = (node.name == "broadcast_in_dim" and inputs[0].v.size < outs[0].size) or all(x.spread for x in held)
    exact = all(x.exact for x in inputs) and node.name != "reduce_precision"
    found = [Value(v=o, s=a, eps=eps, exact=exact, spread=spread, early=early) for o, a in zip(outs, lost, strict=True)]
    return found if several else found[0]


def _astray(node: Node, unsure: list[Any], out: Any) -> Any:
    """Which elements of what is taken by indices may be others."""
    if node.name != "gather":
        return jnp.any(jnp.stack([jnp.any(s > 0) for s in unsure]))
    off = jnp.any(unsure[0] > 0, axis=-1)
    for dimension in sorted(node.params["dimension_numbers"].offset_dims):
        off = jnp.expand_dims(off, dimension)
    return jnp.broadcast_to(off, jnp.shape(out))
