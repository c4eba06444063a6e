"""The table of rules: for every operation of a jaxpr, the loss of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from ratchet.exam.problem.rounding.value import EPS32, TINY, Value, finite


@dataclass(frozen=True, kw_only=True)
class Node:
    """An equation as its rule sees it."""

    bind: Callable[..., Any]
    name: str
    eps: float
    """Of the dtype that the reference gives its result."""
    equation: Any
    parts: int = 1
    """Of how many parts like this one a sum consists."""
    paired: Callable[[Any, Any], tuple[Any, Any]] = field(default=lambda a, b: (a, b))
    """What happens to the operands of a product before they meet: see ``tiled.py``."""

    @property
    def params(self) -> Any:
        return self.equation.params


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A sum or an extreme that may be taken some terms at a time: what is kept of the terms, and what it comes to."""

    arrays: list[Any]
    finish: Callable[[list[Any]], Value]
    """The result, of the arrays of all terms."""
    join: Callable[[Any, Any], Any] = jnp.add
    """The arrays of two parts as those of both."""

    @property
    def whole(self) -> Value:
        return self.finish(self.arrays)


class Rules(dict[str, Callable[[Node, list[Value]], Value | list[Value]]]):
    """Rules by the name of their operation."""

    def of(self, *names: str) -> Callable[[Any], Any]:
        """Add the function that is decorated as the rule of the operations ``names``."""

        def add(function: Any) -> Any:
            self.update(dict.fromkeys(names, function))
            return function

        return add


def rounded(node: Node, v: Any, variance: Any, inputs: Sequence[Value]) -> Value:
    """A result ``v`` that lost ``variance`` before it was rounded to its own dtype."""
    spread = all(x.spread for x in inputs)
    return Value(v=v, variance=finite(v, variance) + TINY**2, eps=max(node.eps, EPS32), spread=spread)
