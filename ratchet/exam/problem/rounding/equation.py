"""The results of one equation of a jaxpr, and what is lost in them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ratchet.exam.problem.rounding import elementwise, moves, sums, ties
from ratchet.exam.problem.rounding.value import (
    EPS32,
    RMS,
    Node,
    Parts,
    Rules,
    Value,
    certain,
    eps_of,
    is_float,
    loss,
    rounded,
    wide,
)

_RULES = Rules(elementwise.RULES | moves.RULES | sums.RULES)

DRAWS = 4
"""Of random signs, whose root mean square is taken: a few, for each costs a derivative."""
_OF_PRODUCTS = frozenset("triangular_solve cholesky lu qr geqrf householder_product eigh svd tridiagonal_solve".split())
"""Operations of linear algebra that are made of products."""
DEPTH = 4.0
"""Roundings one after another that an operation without a rule is granted: what it does inside is not known."""

_SCATTERS: dict[str, Callable[..., Any]] = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter_add": lax.scatter_add,
    "scatter-mul": lax.scatter_mul,
    "scatter_mul": lax.scatter_mul,
    "scatter-min": lax.scatter_min,
    "scatter_min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
    "scatter_max": lax.scatter_max,
}


_WINDOWS = {"max": lax.reduce_window_max_p, "min": lax.reduce_window_min_p, "add": lax.reduce_window_sum_p}
"""Reductions of windows by what two numbers become."""

PARTS: dict[str, Callable[[Node, list[Value]], Parts]] = {
    "reduce_sum": sums.total,
    "reduce_max": moves.extreme,
    "reduce_min": moves.extreme,
    "dot_general": sums.product,
}
"""Operations that may be applied to some of their terms at a time. Sums only of floats."""


def apply(equation: Any, inputs: list[Value]) -> list[Value]:
    """The results of one equation of a jaxpr that has no inner one."""
    node = node_of(equation)
    rule = _RULES.get(node.name)
    if rule is None and len(equation.outvars) == 1 and node.name in elementwise.ELEMENTWISE:
        rule = elementwise.differences
    found = (rule or anything)(node, inputs)
    return ties.traced(node, inputs, found if isinstance(found, list) else [found])


@_RULES.of("reduce_window")
def _windows(node: Node, inputs: list[Value]) -> Value | list[Value]:
    """As JAX leaves it where the first number is an array: the same without one, and then that one."""
    by = [equation.primitive.name for equation in node.params["jaxpr"].eqns]
    if len(by) != 1 or by[0] not in _WINDOWS or len(inputs) != 2:
        raise NotImplementedError(f"a reduction of windows by {' and '.join(by)}: wanted one of {', '.join(_WINDOWS)}")
    kept = {name: value for name, value in node.params.items() if name not in ("jaxpr", "consts")}
    primitive = _WINDOWS[by[0]]
    reduced = replace(node, name=primitive.name, bind=lambda x: primitive.bind(x, **kept))
    found = _RULES[primitive.name](reduced, inputs[:1])
    assert isinstance(found, Value)
    last = replace(node, name=by[0], bind=getattr(lax, by[0]))
    return _RULES[by[0]](last, [found, inputs[1]])


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
            (_moved(node, inputs[n]) * jax.random.rademacher(k, inputs[n].v.shape, jnp.float64)).astype(
                inputs[n].v.dtype
            )
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


def _moved(node: Node, x: Value) -> Any:
    """By how much an operand is off for an operation without a rule: by its loss, and what products inside leave out.

    Of a solve or a factorisation no ``precision`` is asked. Its products may be made of three bfloat16 ones, which are
    what HIGH means: of a number that is no bfloat16 something is left out. In blocks that double there are two products
    one after another for each doubling: the variance of that many, where ``DEPTH`` says how many roundings there are.
    """
    lost = loss(x)
    if node.name not in _OF_PRODUCTS or not is_float(x.v.dtype):
        return lost
    products = 2 * math.log2(max(x.v.shape[-2:], default=2))
    left_out = RMS * sums.PASSES["HIGH"] * math.sqrt(products) / DEPTH * jnp.abs(x.v)
    is_narrow = x.v == x.v.astype(jnp.bfloat16).astype(x.v.dtype)
    return jnp.where(is_narrow, lost, jnp.hypot(lost, left_out))


def node_of(equation: Any) -> Node:
    """An equation in float64."""
    params = dict(equation.params)
    for key in ("new_dtype", "preferred_element_type", "dtype"):
        if params.get(key) is not None and is_float(params[key]):
            params[key] = wide(params[key])

    def bind(*arrays: Any) -> Any:
        if equation.primitive.name in _SCATTERS:  # its inner function is of the narrow dtype
            kept = {"dimension_numbers", "indices_are_sorted", "unique_indices", "mode"}
            return _SCATTERS[equation.primitive.name](*arrays, **{k: params[k] for k in kept})
        return equation.primitive.bind(*arrays, **params)

    eps = max((eps_of(out.aval.dtype) for out in equation.outvars), default=0.0)
    return Node(bind=bind, name=equation.primitive.name, eps=eps, equation=equation)
