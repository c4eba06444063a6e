"""Arithmetic on scalars, constant or traced, as ``ratchet.tpu.scalar`` defines it: control flow may depend on them.

A denormal counts as zero, as in the compiler's constant folder; the machine refuses one that control flow depends on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu import scalar

Array = Any

FOLDED: Mapping[str, Callable[[int, int], scalar.Answer]] = {
    "arith.addi": scalar.add,
    "arith.subi": scalar.subtract,
    "arith.muli": scalar.multiply,
    "arith.divsi": scalar.divide_signed,
    "arith.remsi": scalar.remainder_signed,
    "arith.divui": scalar.divide_unsigned,
    "arith.remui": scalar.remainder_unsigned,
    "arith.maxsi": max,
    "arith.minsi": min,
    "arith.maxui": scalar.maximum_unsigned,
    "arith.minui": scalar.minimum_unsigned,
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "arith.shli": scalar.shift_left,
    "arith.shrsi": scalar.shift_right_arithmetic,
    "arith.shrui": scalar.shift_right_logical,
}
"""Operations on two int32 constants."""

DIVISIONS = frozenset(
    f"arith.{name}" for name in ("divsi", "remsi", "divui", "remui", "floordivsi", "ceildivsi", "ceildivui")
)


def is_scalar(value: Array, dtype: Any) -> bool:
    return np.shape(value) == () and value.dtype == np.dtype(dtype)


def fold(name: str, a: Any, b: Any) -> np.generic | None:
    """The result for two constants; None where they are no constants, or it is undefined or not known here."""
    if not isinstance(a, np.generic) or not isinstance(b, np.generic) or name not in FOLDED:
        return None
    if a.dtype != np.int32 and (a.dtype != np.bool_ or name not in ("arith.andi", "arith.ori", "arith.xori")):
        return None
    answer = FOLDED[name](int(a), int(b))
    return None if isinstance(answer, scalar.Undefined) else a.dtype.type(answer)


# --- float32 ---


def flushed(x: Array) -> Array:
    """A float32 scalar with zero, of the same sign, in the place of a denormal."""
    word = lax.bitcast_convert_type(jnp.asarray(x), jnp.uint32)
    is_small = word & np.uint32(0x7F800000) == 0
    return lax.bitcast_convert_type(jnp.where(is_small, word & np.uint32(0x80000000), word), jnp.float32)


def _zeros_in_order(bitwise: Callable[[Array, Array], Array], f: Callable[[Array, Array], Array]) -> Any:
    """Minimum or maximum that knows -0 from +0."""

    def run(a: Array, b: Array) -> Array:
        words = (lax.bitcast_convert_type(x, jnp.uint32) for x in (a, b))
        return jnp.where(a == b, lax.bitcast_convert_type(bitwise(*words), jnp.float32), f(a, b))

    return run


_FLOAT: Mapping[str, Callable[..., Array]] = {
    "arith.addf": lax.add,
    "arith.subf": lax.sub,
    "arith.mulf": lax.mul,
    "arith.minimumf": _zeros_in_order(lax.bitwise_or, lax.min),
    "arith.maximumf": _zeros_in_order(lax.bitwise_and, lax.max),
    "math.floor": lax.floor,
    "math.ceil": lax.ceil,
}
FLOAT: Mapping[str, Callable[..., scalar.Answer]] = {
    "arith.addf": scalar.float_add,
    "arith.subf": scalar.float_subtract,
    "arith.mulf": scalar.float_multiply,
    "arith.minimumf": scalar.float_minimum,
    "arith.maximumf": scalar.float_maximum,
    "math.floor": scalar.float_floor,
    "math.ceil": scalar.float_ceil,
}
"""Operations on float32 scalars that the scalar unit has, and their definitions."""


def on_floats(name: str, *operands: Array) -> Array | None:
    """The result for float32 scalars; None for other operands, and for what the scalar unit has no operation for."""
    if name not in _FLOAT or not all(is_scalar(x, np.float32) for x in operands):
        return None
    return flushed(_FLOAT[name](*map(flushed, operands)))


def leaves_int32(x: Array) -> Array:
    """Whether a float32, cut to an integer, is none of int32: too large, or NaN."""
    return ~((x > np.float32(-(2.0**31) - 256)) & (x < np.float32(2.0**31)))
