"""Element-wise operations of ``arith`` and ``math``. Semantics: the MLIR dialects' documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu import scalar
from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic import scalars
from ratchet.tpu.mosaic.arrays import bitcast_array, bits, is_float, jax_dtype, unsigned
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.rules import Unsupported, computes, integer, rule
from ratchet.tpu.scalar import DIVISION_BY_ZERO, NOT_AN_INTEGER

Array = Any


def _folded(*values: Any) -> bool:
    return all(isinstance(value, np.generic) for value in values)


def _as_unsigned(x: Array) -> Array:
    return x if x.dtype == jnp.bool_ else lax.bitcast_convert_type(x, unsigned(np.dtype(x.dtype)))


def _unsigned(f: Callable[..., Array]) -> Callable[..., Array]:
    """``f`` on the operands read as unsigned integers."""

    def run(*args: Array) -> Array:
        out = f(*map(_as_unsigned, map(jnp.asarray, args)))
        return out if out.dtype == jnp.bool_ else lax.bitcast_convert_type(out, np.dtype(args[0].dtype))

    return run


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "arith.addf": lax.add,
    "arith.subf": lax.sub,
    "arith.mulf": lax.mul,
    "arith.divf": lax.div,
    "arith.remf": lax.rem,
    "arith.maximumf": lax.max,
    "arith.minimumf": lax.min,
    "arith.maxnumf": jnp.fmax,
    "arith.minnumf": jnp.fmin,
    "arith.maximumnumf": jnp.fmax,
    "arith.minimumnumf": jnp.fmin,
    "arith.addi": lax.add,
    "arith.subi": lax.sub,
    "arith.muli": lax.mul,
    "arith.divsi": lax.div,
    "arith.remsi": lax.rem,
    "arith.divui": _unsigned(lax.div),
    "arith.remui": _unsigned(lax.rem),
    "arith.floordivsi": jnp.floor_divide,
    "arith.ceildivsi": lambda a, b: lax.div(a, b) + ((lax.rem(a, b) != 0) & ((a < 0) == (b < 0))).astype(a.dtype),
    "arith.ceildivui": _unsigned(lambda a, b: lax.div(a, b) + (lax.rem(a, b) != 0).astype(a.dtype)),
    "arith.maxsi": lax.max,
    "arith.minsi": lax.min,
    "arith.maxui": _unsigned(lax.max),
    "arith.minui": _unsigned(lax.min),
    "arith.andi": lax.bitwise_and,
    "arith.ori": lax.bitwise_or,
    "arith.xori": lax.bitwise_xor,
    "arith.shli": lax.shift_left,
    "arith.shrsi": lax.shift_right_arithmetic,
    "arith.shrui": lax.shift_right_logical,
    "math.powf": jnp.power,
    "math.atan2": jnp.arctan2,
    "math.copysign": jnp.copysign,
}

_SAME_IN_LAX = (
    "exp", "exp2", "log", "log1p", "expm1", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "tanh", "sinh", "cosh",
    "asin", "acos", "atan", "erf", "erfc", "floor", "ceil",
)  # fmt: skip
_UNARY: dict[str, Callable[[Array], Array]] = {
    **{f"math.{name}": getattr(lax, name) for name in _SAME_IN_LAX},
    "arith.negf": lax.neg,
    "math.log2": jnp.log2,
    "math.absf": lax.abs,
    "math.absi": lax.abs,
    "math.trunc": jnp.trunc,
    "math.round": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "math.roundeven": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "math.ctpop": lax.population_count,
    "math.ctlz": lax.clz,
    "math.isnan": jnp.isnan,
    "math.isinf": jnp.isinf,
    "math.isfinite": lax.is_finite,
    "tpu.logistic": lax.logistic,
    "tpu.weird": lambda x: ~lax.is_finite(x),
}

_COMPARE_INT = {0: "eq", 1: "ne", 2: "lt", 3: "le", 4: "gt", 5: "ge", 6: "ult", 7: "ule", 8: "ugt", 9: "uge"}
_COMPARE = {"eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge}
# Ordered (o*) comparisons are false on NaN, unordered (u*) ones true.
_COMPARE_FLOAT = {1: "eq", 2: "gt", 3: "ge", 4: "lt", 5: "le", 6: "ne"}


@computes(*(set(_BINARY) - scalars.DIVISIONS), attributes=("fastmath", "overflowFlags"))
def _binary(op: Op, a: Array, b: Array) -> Array:
    value: Any = scalars.fold(op.name, a, b)
    if value is None:
        value = scalars.on_floats(op.name, a, b)
    return _BINARY[op.name](jnp.asarray(a), jnp.asarray(b)) if value is None else value


@rule(*sorted(scalars.DIVISIONS), checks=True)
def _divide(executor: Executor, op: Op) -> None:
    a, b = (executor[value] for value in op.operands)
    if scalars.is_scalar(b, np.int32):
        executor.report(Kind.UNDEFINED_SCALAR, op, b == 0, DIVISION_BY_ZERO.what)
    value: Any = scalars.fold(op.name, a, b)
    if value is None:
        a, b = jnp.asarray(a), jnp.asarray(b)
        by_zero = a if op.name.startswith("arith.rem") else jnp.full_like(a, -1)
        # XLA's compiler dies where it folds a division by zero.
        value = jnp.where(b == 0, by_zero, _BINARY[op.name](a, jnp.where(b == 0, jnp.ones_like(b), b)))
    executor.result(op, value)


@computes(*_UNARY, attributes=("fastmath",))
def _unary(op: Op, x: Array) -> Array:
    value = scalars.on_floats(op.name, x)
    return _UNARY[op.name](jnp.asarray(x)) if value is None else value


@computes("tpu.reduce_precision", attributes=("exponent_bits", "mantissa_bits"))
def _reduce_precision(op: Op, x: Array) -> Array:
    return lax.reduce_precision(x, integer(op, "exponent_bits"), integer(op, "mantissa_bits"))


@rule("arith.mulsi_extended", "arith.mului_extended")
def _wide_product(executor: Executor, op: Op) -> None:
    """Both halves of the 64 bits of a product of 32."""
    a, b = (jnp.asarray(executor[value]) for value in op.operands)
    if a.dtype != jnp.int32:
        raise Unsupported(f"{op.name} of {a.dtype}")
    high = _unsigned(_high_half)(a, b)
    if op.name == "arith.mulsi_extended":  # what a sign stands for is taken off again
        high = high - jnp.where(a < 0, b, 0) - jnp.where(b < 0, a, 0)
    executor.values.update(zip(op.results, (a * b, high), strict=True))


def _high_half(a: Array, b: Array) -> Array:
    """Of the product of two uint32, by the products of their halves."""
    (a_high, a_low), (b_high, b_low) = ((x >> 16, x & 0xFFFF) for x in (a, b))
    middle = a_high * b_low + (a_low * b_low >> 16)
    return a_high * b_high + (middle >> 16) + ((middle & 0xFFFF) + a_low * b_high >> 16)


@computes("arith.constant", attributes=("value",))
def _constant(op: Op) -> Any:
    type_, value = op.results[0].type, op.attributes["value"]
    dtype = jax_dtype(type_.dtype)
    if not isinstance(value, (bool, int, float, np.ndarray)):
        raise Unsupported(f"constant {value!s:.60}")
    if type_.kind == "scalar":
        return _scalar(value, dtype)
    if isinstance(value, np.ndarray) and value.size and not any(value.strides):
        return jnp.full(type_.shape, _scalar(value.flat[0].item(), dtype))
    return jnp.asarray(np.asarray(value).astype(dtype))


def _scalar(value: Any, dtype: np.dtype) -> Any:
    if not is_float(dtype) and dtype != np.dtype(bool):
        width = bits(dtype)
        value = (int(value) + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))
    return np.asarray(value).astype(dtype)[()]


@computes("arith.cmpi", attributes=("predicate",))
def _cmpi(op: Op, a: Array, b: Array) -> Any:
    name = _COMPARE_INT[int(op.attributes["predicate"])]
    if _folded(a, b) and a.dtype == np.int32:
        holds = scalar.compare_unsigned(name[1:], int(a), int(b)) if name[0] == "u" else scalar.RELATIONS[name](a, b)
        return np.bool_(holds)
    if name.startswith("u"):
        a, b, name = _as_unsigned(jnp.asarray(a)), _as_unsigned(jnp.asarray(b)), name[1:]
    return _COMPARE[name](jnp.asarray(a), jnp.asarray(b))


@computes("arith.cmpf", attributes=("predicate", "fastmath"))
def _cmpf(op: Op, a: Array, b: Array) -> Array:
    a, b = jnp.asarray(a), jnp.asarray(b)
    if scalars.is_scalar(a, np.float32):
        a, b = scalars.flushed(a), scalars.flushed(b)
    predicate = int(op.attributes["predicate"])
    unordered = jnp.isnan(a) | jnp.isnan(b)
    if predicate in (0, 15):
        return jnp.full(a.shape, predicate == 15)
    if predicate in (7, 14):
        return unordered if predicate == 14 else ~unordered
    ordered = predicate <= 6
    out = _COMPARE[_COMPARE_FLOAT[predicate if ordered else predicate - 7]](a, b)
    if not ordered:
        return out | unordered
    return out & ~unordered if predicate == 6 else out  # jnp's comparisons are false on NaN, except ``!=``


@computes("arith.select")
def _select(op: Op, condition: Array, a: Array, b: Array) -> Array:
    del op
    if _folded(condition):
        return a if condition else b
    return lax.select(condition, *map(jnp.asarray, (a, b)))


@computes("arith.index_cast", "arith.index_castui")
def _index_cast(op: Op, x: Array) -> Array:
    return x.astype(_dtype(op))


@computes("arith.extsi", "arith.trunci", "arith.extf", "arith.truncf", "arith.sitofp",
          "tpu.extf", "tpu.sitofp", "tpu.truncf",
          attributes=("fastmath", "overflowFlags", "rounding_mode", "roundingmode"))  # fmt: skip
def _convert(op: Op, x: Array) -> Array:
    dtype = _dtype(op)
    mode = str(op.attributes.get("rounding_mode", "to_nearest_even"))
    if "to_nearest_even" not in mode or "roundingmode" in op.attributes:
        raise Unsupported(f"{op.name} with rounding mode {mode}")
    if x.dtype == np.dtype(bool) and op.name in ("arith.extsi", "arith.sitofp", "tpu.sitofp"):
        x = -jnp.asarray(x).astype(jnp.int32)  # a one-bit signed integer is 0 or -1
    if op.name == "arith.trunci" and dtype == np.dtype(bool):
        x = x & 1
    if op.name in ("arith.truncf", "tpu.truncf") and dtype == jnp.bfloat16:
        # On some hosts XLA leaves out a rounding that is widened back at once, whatever is asked of it; never this one.
        x = lax.reduce_precision(jnp.asarray(x), exponent_bits=8, mantissa_bits=7)
    return x.astype(dtype)


@computes("arith.extui", "arith.uitofp", "tpu.uitofp", attributes=("fastmath", "rounding_mode"))
def _convert_unsigned(op: Op, x: Array) -> Array:
    if "to_nearest_even" not in str(op.attributes.get("rounding_mode", "to_nearest_even")):
        raise Unsupported(f"{op.name} with rounding mode {op.attributes['rounding_mode']}")
    return (x if x.dtype == np.dtype(bool) else _as_unsigned(jnp.asarray(x))).astype(_dtype(op))


@rule("arith.fptosi", "arith.fptoui", "tpu.fptosi", "tpu.fptoui", attributes=("rounding_mode", "fastmath"), checks=True)
def _float_to_int(executor: Executor, op: Op) -> None:
    # Out-of-range values saturate in vectors, as in XLA.
    x, dtype = jnp.asarray(executor[op.operands[0]]), _dtype(op)
    mode = str(op.attributes.get("rounding_mode", "towards_zero"))
    if "to_nearest_even" in mode:
        x = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    elif "towards_zero" not in mode:
        raise Unsupported(f"{op.name} with rounding mode {mode}")
    if scalars.is_scalar(x, np.float32):
        executor.report(Kind.UNDEFINED_SCALAR, op, scalars.leaves_int32(x), NOT_AN_INTEGER.what)
    if op.name.endswith("ui"):
        executor.result(op, lax.bitcast_convert_type(x.astype(unsigned(dtype)), dtype))
    else:
        executor.result(op, x.astype(dtype))


@computes("arith.bitcast", "tpu.bitcast")
def _bitcast(op: Op, x: Array) -> Array:
    return bitcast_array(jnp.asarray(x), _dtype(op))


@computes("tpu.reciprocal", attributes=("approx", "full_range"))
def _reciprocal(op: Op, x: Array) -> Array:
    if op.attributes.get("approx"):  # how exact the hardware's is, is not published: as JAX computes it elsewhere
        return lax.reduce_precision(jnp.reciprocal(lax.reduce_precision(x, 8, 7)), 8, 7)
    return jnp.reciprocal(x)


@computes("math.fma", attributes=("fastmath",))
def _fma(op: Op, a: Array, b: Array, c: Array) -> Array:
    del op
    return a * b + c


@computes("math.fpowi", attributes=("fastmath",))
def _fpowi(op: Op, a: Array, b: Array) -> Array:
    del op
    return lax.pow(a, b)


def _dtype(op: Op) -> np.dtype:
    return jax_dtype(op.results[0].type.dtype)
