"""A value of the reference with its loss, and what the rules of all operations are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

EPS32 = float(np.finfo(np.float32).eps)
TINY = float(np.finfo(np.float32).tiny)
RMS = 0.25
"""Standard deviation of a rounding over eps times the value: ulp / sqrt(12), where ulp is eps/2 to eps of the value."""
NEAR = 8.0
"""Losses from a step within which a value may be on either side of it: of millions of draws of a normal distribution
none is further than six, and where it may jump a loss is an estimate itself."""
FUNCTION = 8.0
"""Roundings that a function loses: a float32 exponential, logarithm or root is exact to a few units in the last place,
on a TPU as on a CPU, and a rounding is a quarter of one."""

FEW = 11
"""Bits behind the first one of an input whose sums and products may be exact: of more, any change of a formula rounds
others."""

LEAST = {
    float(jnp.finfo(dtype).eps): float(jnp.finfo(dtype).tiny)
    for dtype in (jnp.float4_e2m1fn, jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float16)
}
"""By eps, the smallest normal number of dtypes that have so few exponents that values below it are met."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value of the reference. The own rounding is counted where the value is used: an output's is the judge's."""

    v: Any
    """In float64; integers and booleans as they are."""
    s: Any = None
    """Its loss, without its own rounding. None: nothing."""
    eps: float = EPS32
    """Of its own rounding. 0.0: a float that holds an integer, of which ``s`` is what it may be off by."""
    exact: bool = False
    """An input, a constant, or picked from such: comparing two of them has one answer."""
    spread: bool = False
    """A scalar or a broadcast one: a factor that can be moved past a product."""
    whole: bool = False
    """A float that counts: a sum of ones and zeros, which is right or off by one, in any order."""
    early: Any = None
    """Variance of a product that is added where a factor follows it."""
    sure: Any = None
    """Of a computed float, where no honest arithmetic loses anything: booleans, True everywhere, None nowhere."""
    along: Any = None
    """Per axis, where numbers that are equal on one line along it stay so: see ``ties.py``."""
    key: Any = None
    """Numbers that are equal only where these and all that was added to them are; None: the values themselves."""
    variance: Any = None
    """The square of ``s`` in float64, where it is at hand: what follows needs no root of it and no square again."""
    turns: int = 0
    """How often the loop runs that carries it, where what that carries next is linear in it: see ``recurrence.py``."""
    common: Any = None
    """By how much, with its sign, it is off where others that share something are, too: decays that a linear loop
    carries, or the rounding of an operand to bfloat16 for a product."""

    logs: Any = None
    """Of what a linear loop carries: the sum of the logarithms' sizes of the decays before, as a chunk holds them."""

    def __post_init__(self) -> None:
        if self.variance is not None and self.s is None:
            object.__setattr__(self, "s", jnp.sqrt(self.variance))
        for name in ("s", "early", "common", "logs"):  # float32 takes half the memory, and a loss is no more exact
            if getattr(self, name) is not None:
                object.__setattr__(self, name, jnp.asarray(getattr(self, name), jnp.float32))


def is_float(dtype: Any) -> bool:
    """Whether a dtype is rounded to: floats, and complex numbers of them."""
    return jnp.issubdtype(dtype, jnp.inexact)


def wide(dtype: Any) -> Any:
    """float64, or complex numbers of it."""
    return jnp.dtype("complex128" if jnp.issubdtype(dtype, jnp.complexfloating) else "float64")


def widened(value: Any) -> Any:
    """An array in float64, integers and booleans as they are."""
    dtype = jnp.result_type(value)
    return jnp.asarray(value, wide(dtype)) if is_float(dtype) else value


def exact(value: Any, *, spread: bool = False) -> Value:
    """An input or a constant."""
    return Value(v=widened(value), exact=True, spread=spread)


def eps_of(dtype: Any) -> float:
    """Eps of a float dtype, and at least that of float32."""
    return max(float(jnp.finfo(dtype).eps), EPS32) if is_float(dtype) else 0.0


def loss(value: Value) -> Any:
    """Standard deviation of what is lost in a value that is used, its own rounding included; 0 where it is infinite."""
    if not is_float(value.v.dtype):
        return jnp.zeros(jnp.shape(value.v)) if value.s is None else value.s
    return jnp.sqrt(variance_of(value))


def loss_of_output(value: Value) -> Any:
    """The loss of a value that is returned, float64: its own rounding counts as one to float32."""
    return jnp.asarray(loss(replace(value, eps=EPS32)), jnp.float64)


def finite(v: Any, s: Any) -> Any:
    """A loss, and 0 where the value itself is no finite number."""
    return jnp.where(jnp.isfinite(v) & ~jnp.isnan(s), s, 0.0)


def variance_of(value: Value) -> Any:
    """The square of its loss."""
    if not is_float(value.v.dtype):
        return jnp.square(loss(value))
    own = _own(value)
    return finite(value.v, own if value.s is None else own + _earlier(value))


def _own(value: Value) -> Any:
    """The square of what its own rounding loses. In float64 the square of any float32 is a number again."""
    least = LEAST.get(value.eps, 0.0)
    size = jnp.maximum(jnp.abs(value.v), least) if least else jnp.abs(value.v)
    return jnp.square(RMS * value.eps * size)


def earlier(value: Value) -> Any:
    """Its loss without its own rounding, as an array."""
    return jnp.zeros(jnp.shape(value.v), jnp.float32) if value.s is None else value.s


def losing(value: Value, s: Any = None, variance: Any = None) -> Value:
    """A value that lost this instead, without its own rounding: either ``s`` or its square."""
    return replace(value, s=s, variance=variance)


def with_more(value: Value, variance: Any) -> Any:
    """The variance of what ``earlier`` says, and beside that ``variance`` was lost."""
    return _earlier(value) + variance


def _earlier(value: Value) -> Any:
    return jnp.square(earlier(value).astype(jnp.float64)) if value.variance is None else value.variance


def certain(inputs: Sequence[Value]) -> bool:
    """Integers and booleans about which there is no doubt, and comparisons of what is exact."""
    return all(x.s is None and (x.exact or not is_float(x.v.dtype)) for x in inputs)


def sure(value: Value) -> Any:
    """Where a value is what any honest arithmetic makes of it: see ``ties.py``. Inputs are where they have few bits."""
    if not is_float(value.v.dtype):
        return True if value.s is None else value.s == 0
    return fits(value.v, 2.0**-FEW) if value.exact else value.sure


def fits(v: Any, eps: float) -> Any:
    """Whether numbers of float64 are some of a dtype with this eps."""
    return lax.reduce_precision(v, exponent_bits=11, mantissa_bits=round(-math.log2(eps))) == v


def no_nan(array: Any) -> Any:
    """0 in place of NaN, as infinity times nothing lost is."""
    return jnp.where(jnp.isnan(array), 0.0, array)


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


def pass_of(node: Node, number: int) -> str:
    """How many passes of bfloat16 a product takes for a float32 operand; nothing of others."""
    if node.equation.invars[number].aval.dtype != jnp.float32:
        return ""
    asked = node.params["precision"]
    asked = asked[number] if isinstance(asked, tuple) else asked
    return "DEFAULT" if asked is None else str(getattr(asked, "name", asked))


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
