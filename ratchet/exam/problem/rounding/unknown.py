"""Operations that no rule knows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ratchet.exam.problem.rounding.rules import Node, rounded
from ratchet.exam.problem.rounding.value import EPS32, Value, certain, is_float, loss

DRAWS = 4
DEPTH = 4.0
"""Roundings one after another that an operation without a rule is granted."""


def anything(node: Node, inputs: list[Value]) -> list[Value]:
    """An operation without a rule: its derivative along losses of random signs, in root mean square of a few draws."""
    outs = node.bind(*(x.v for x in inputs))
    several = isinstance(outs, list | tuple)
    outs = list(outs) if several else [outs]
    if not any(is_float(o.dtype) for o in outs):
        return [Value(v=o, exact=certain(inputs), eps=max(node.eps, EPS32)) for o in outs]
    floats = [n for n, x in enumerate(inputs) if is_float(x.v.dtype)]

    def function(*arrays: Any) -> list[Any]:
        given = [arrays[floats.index(n)] if n in floats else x.v for n, x in enumerate(inputs)]
        found = node.bind(*given)
        return [o for o in (found if several else [found]) if is_float(o.dtype)]

    key, total = jax.random.key(0), None
    for draw in range(DRAWS):
        keys = jax.random.split(jax.random.fold_in(key, draw), len(floats))
        steps = [
            (loss(inputs[n]) * jax.random.rademacher(k, inputs[n].v.shape, jnp.float64)).astype(inputs[n].v.dtype)
            for n, k in zip(floats, keys, strict=True)
        ]
        _, moved = jax.jvp(function, [inputs[n].v for n in floats], steps)
        squares = [jnp.square(jnp.abs(m)) / DRAWS for m in moved]
        total = squares if total is None else [a + b for a, b in zip(total, squares, strict=True)]
    spread = iter(total or [])
    return [
        rounded(node, o, DEPTH**2 * next(spread) + jnp.square(node.eps * jnp.max(jnp.abs(o), initial=0.0)), inputs)
        if is_float(o.dtype)
        else Value(v=o)
        for o in outs
    ]
