"""The results of one equation of a jaxpr, and what is lost in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax

from ratchet.exam.problem.rounding import elementwise, order, places, sums
from ratchet.exam.problem.rounding.rules import Node, Parts
from ratchet.exam.problem.rounding.unknown import anything
from ratchet.exam.problem.rounding.value import Value, eps_of, is_float, wide

_RULES = elementwise.RULES | order.RULES | places.RULES | sums.RULES

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


PARTS: dict[str, Callable[[Node, list[Value]], Parts]] = {
    "reduce_sum": sums.total,
    "reduce_max": order.extreme,
    "reduce_min": order.extreme,
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
    return found if isinstance(found, list) else [found]


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
