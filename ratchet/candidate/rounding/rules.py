"""The table of rules: for every operation of a jaxpr, the loss of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from ratchet.candidate.rounding.value import EPS32, TINY, Value, finite


@dataclass(frozen=True, kw_only=True)
class Node:
    """An equation as its rule sees it."""

    bind: Callable[..., Any]
    name: str
    eps: float
    """Of the dtype that the reference gives its result."""
    equation: Any

    @property
    def params(self) -> Any:
        return self.equation.params


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
    return Value(v=v, s=finite(v, jnp.sqrt(variance)) + TINY, eps=max(node.eps, EPS32), spread=spread)
