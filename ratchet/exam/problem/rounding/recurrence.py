"""Recurrences that may be taken in another order, and what honest arithmetic may lose by that.

What a loop carries is a linear function of what it carried the turn before: ``state = decay * state + update``. Then
turns may be taken together, as chunked scans do. A product of decays becomes the exponential of a difference of two
prefix sums of their logarithms, and each prefix is rounded by its own size, however near the two are to each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax.extend import core

from ratchet.exam.problem.rounding.value import EPS32, RMS, Value, is_float, losing, variance_of, with_more

CHUNK = 128
"""Turns that a kernel takes together: the edge of the matrix unit, with which it adds up their logarithms."""

_SUMS = frozenset(
    "add sub add_any neg convert_element_type reduce_sum cumsum reduce_window_sum real imag broadcast_in_dim reshape "
    "transpose squeeze slice rev copy concatenate pad dynamic_slice dynamic_update_slice gather select_n scatter "
    "scatter-add optimization_barrier stop_gradient".split()
)
"""Operations that are linear in all of their floats together."""
_PRODUCTS = frozenset(("mul", "dot_general", "conv_general_dilated"))


def is_linear(closed: Any, consts: int, carried: int, inlined: Any) -> bool:
    """Whether what the body of a loop carries next is linear in what it carried, with some of that in it.

    Args:
      closed: The body's jaxpr: constants, then what is carried, then slices.
      inlined: The jaxpr that an equation calls, and its constants, or None: ``jaxprs.inner`` of what is inlined.
    """
    floats = [int(is_float(var.aval.dtype)) for var in closed.jaxpr.invars]
    degrees = [is_carried * (consts <= n < consts + carried) for n, is_carried in enumerate(floats)]
    found = _degrees(closed.jaxpr, degrees, inlined)[:carried]
    return any(found) and max(found) == 1


def _degrees(jaxpr: Any, given: Sequence[int], inlined: Any) -> list[int]:
    """Of what degree each result is in what is carried; 2: of any higher one."""
    known: dict[Any, int] = dict(zip(jaxpr.invars, given, strict=True))

    def read(atom: Any) -> int:
        return 0 if isinstance(atom, core.Literal) else known.get(atom, 0)

    for equation in jaxpr.eqns:
        degrees = [read(atom) for atom in equation.invars]
        called = inlined(equation) if any(degrees) else None
        if called is not None:
            found = _degrees(called, degrees, inlined)
        else:
            found = [_degree(equation, degrees)] * len(equation.outvars)
        known.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _degree(equation: Any, degrees: Sequence[int]) -> int:
    name = equation.primitive.name
    if not any(degrees):
        return 0
    if name in _PRODUCTS:
        return min(sum(degrees), 2)
    if name == "div":
        return 2 if degrees[1] else degrees[0]
    places = [d for d, var in zip(degrees, equation.invars, strict=True) if not is_float(var.aval.dtype)]
    return 2 if name not in _SUMS or any(places) else max(degrees)


def decayed(a: Value, b: Value, out: Any) -> tuple[Value, Value, Any, Any]:
    """The factors of a product ``out``, of which one may be what a linear loop carries, what is off in common, and
    the logarithms of its decays.

    The other is a decay, unless it is a plain number: its powers are no sum of logarithms.
    """
    if not a.turns and not b.turns:
        return a, b, None, None
    carried, decay = (a, b) if a.turns else (b, a)
    logs = carried.logs
    if jnp.ndim(decay.v) or not (decay.exact and decay.spread):
        decay, logs = _in_prefixes(decay, carried, out)
    common = None if carried.common is None else carried.common * decay.v
    if decay.spread or decay.v.size < out.size:  # all that share the decay are off by the same share
        shared = variance_of(decay) * jnp.square(carried.v)
        before = 0.0 if common is None else jnp.square(common.astype(jnp.float64))
        common = jnp.sign(out) * jnp.sqrt(before + shared)
    return (carried, decay, common, logs) if a.turns else (decay, carried, common, logs)


def _in_prefixes(decay: Value, carried: Value, out: Any) -> tuple[Value, Any]:
    """A decay that is taken from two prefix sums, each in an order of its own, and the logarithms summed with its own.

    The k-th of a chunk of ``n`` is about ``k log(decay)``. Terms of one sign lose ``RMS eps sqrt(k / 3)`` of their sum
    one after another. Of two, in root mean square over the chunk, that is ``RMS eps sqrt(n^3 / 6) |log(decay)|``.
    Behind stronger decays a prefix is larger: ``n |log(decay)|`` is then the sum over as many turns before.
    """
    size, count = jnp.abs(decay.v), min(carried.turns, CHUNK)
    known = (size > 0) & jnp.isfinite(size)
    log = jnp.abs(jnp.log(jnp.where(known, size, 1.0)))
    before = 0.0 if carried.logs is None else carried.logs.astype(jnp.float64)
    summed = before * (1 - 1 / count) + jnp.broadcast_to(log, jnp.shape(out))
    shape = (1,) * (jnp.ndim(out) - jnp.ndim(size)) + jnp.shape(size)
    shared = tuple(axis for axis, length in enumerate(shape) if length == 1)
    largest = jnp.max(summed, axis=shared, initial=0.0).reshape(jnp.shape(size))
    prefix = jnp.where(known, size * jnp.maximum(count * log, largest), 0.0)
    variance = jnp.square(RMS * EPS32 * math.sqrt(count / 6) * prefix)
    return losing(decay, variance=with_more(decay, variance)), summed


def together(out: Value, inputs: Sequence[Value], common: Any = None, logs: Any = None) -> Value:
    """``out`` as still carried, with what is off in common and its logarithms; of a sum or what one operand becomes."""
    turns = max((x.turns for x in inputs), default=0)
    return replace(out, turns=turns, common=common, logs=logs) if turns or common is not None else out
