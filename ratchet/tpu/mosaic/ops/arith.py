"""Element-wise operations of ``arith`` and ``math``. Semantics: the MLIR dialects' documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu import scalar
from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic import scalars
from ratchet.tpu.mosaic.arrays import bitcast_array, bits, is_float, jax_dtype, unsigned
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.rules import rule
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
    "arith.addi": lax.add,
    "arith.subi": lax.sub,
    "arith.muli": lax.mul,
    "arith.divsi": lax.div,
    "arith.remsi": lax.rem,
    "arith.divui": _unsigned(lax.div),
    "arith.remui": _unsigned(lax.rem),
    "arith.floordivsi": jnp.floor_divide,
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
    "tpu.weird": lambda x: ~lax.is_finite(x),
}

_COMPARE_INT = {0: "eq", 1: "ne", 2: "lt", 3: "le", 4: "gt", 5: "ge", 6: "ult", 7: "ule", 8: "ugt", 9: "uge"}
_COMPARE = {"eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge}
# Ordered (o*) comparisons are false on NaN, unordered (u*) ones true.
_COMPARE_FLOAT = {1: "eq", 2: "gt", 3: "ge", 4: "lt", 5: "le", 6: "ne"}


_DIVISIONS = tuple(sorted(scalars.DIVISIONS))


@rule(*(set(_BINARY) - scalars.DIVISIONS), attributes=("fastmath", "overflowFlags"))
def _binary(executor: Executor, op: Op) -> None:
    a, b = (executor[value] for value in op.operands)
    value = scalars.fold(op.name, a, b)
    if value is None:
        value = scalars.on_floats(op.name, a, b)
    executor.result(op, _BINARY[op.name](jnp.asarray(a), jnp.asarray(b)) if value is None else value)


@rule(*_DIVISIONS, checks=True)
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


@rule(*_UNARY, attributes=("fastmath",))
def _unary(executor: Executor, op: Op) -> None:
    x = executor[op.operands[0]]
    value = scalars.on_floats(op.name, x)
    executor.result(op, _UNARY[op.name](jnp.asarray(x)) if value is None else value)


@rule("arith.constant", attributes=("value",))
def _constant(executor: Executor, op: Op) -> None:
    type_, value = op.results[0].type, op.attributes["value"]
    dtype = jax_dtype(type_.dtype)
    if not isinstance(value, (bool, int, float, np.ndarray)):
        raise executor.kernel.refusal(f"constant {value!s:.60}", op)
    if type_.kind == "scalar":
        executor.result(op, _scalar(value, dtype))
    elif isinstance(value, np.ndarray) and value.size and not any(value.strides):
        executor.result(op, jnp.full(type_.shape, _scalar(value.flat[0].item(), dtype)))
    else:
        executor.result(op, jnp.asarray(np.asarray(value).astype(dtype)))


def _scalar(value: Any, dtype: np.dtype) -> Any:
    if not is_float(dtype) and dtype != np.dtype(bool):
        width = bits(dtype)
        value = (int(value) + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))
    return np.asarray(value).astype(dtype)[()]


@rule("arith.cmpi", attributes=("predicate",))
def _cmpi(executor: Executor, op: Op) -> None:
    a, b = (executor[value] for value in op.operands)
    name = _COMPARE_INT[int(op.attributes["predicate"])]
    if _folded(a, b) and a.dtype == np.int32:
        holds = scalar.compare_unsigned(name[1:], int(a), int(b)) if name[0] == "u" else scalar.RELATIONS[name](a, b)
        executor.result(op, np.bool_(holds))
        return
    if name.startswith("u"):
        a, b, name = _as_unsigned(jnp.asarray(a)), _as_unsigned(jnp.asarray(b)), name[1:]
    executor.result(op, _COMPARE[name](jnp.asarray(a), jnp.asarray(b)))


@rule("arith.cmpf", attributes=("predicate", "fastmath"))
def _cmpf(executor: Executor, op: Op) -> None:
    a, b = (jnp.asarray(executor[value]) for value in op.operands)
    if scalars.is_scalar(a, np.float32):
        a, b = scalars.flushed(a), scalars.flushed(b)
    predicate = int(op.attributes["predicate"])
    unordered = jnp.isnan(a) | jnp.isnan(b)
    if predicate in (0, 15):
        out = jnp.full(a.shape, predicate == 15)
    elif predicate == 7:
        out = ~unordered
    elif predicate == 14:
        out = unordered
    else:
        ordered = predicate <= 6
        out = _COMPARE[_COMPARE_FLOAT[predicate if ordered else predicate - 7]](a, b)
        # jnp's comparisons are false on NaN, except ``!=``.
        out = (out & ~unordered) if ordered and predicate == 6 else out
        out = (out | unordered) if not ordered else out
    executor.result(op, out)


@rule("arith.select")
def _select(executor: Executor, op: Op) -> None:
    condition, a, b = (executor[value] for value in op.operands)
    if _folded(condition):
        executor.result(op, a if condition else b)
    else:
        executor.result(op, lax.select(condition, *map(jnp.asarray, (a, b))))


@rule("arith.index_cast", "arith.index_castui")
def _index_cast(executor: Executor, op: Op) -> None:
    executor.result(op, executor[op.operands[0]].astype(jax_dtype(op.results[0].type.dtype)))


@rule("arith.extsi", "arith.trunci", "arith.extf", "arith.truncf", "arith.sitofp",
      "tpu.extf", "tpu.sitofp", "tpu.truncf",
      attributes=("fastmath", "overflowFlags", "rounding_mode", "roundingmode"))  # fmt: skip
def _convert(executor: Executor, op: Op) -> None:
    x, dtype = executor[op.operands[0]], jax_dtype(op.results[0].type.dtype)
    mode = str(op.attributes.get("rounding_mode", "to_nearest_even"))
    if "to_nearest_even" not in mode or "roundingmode" in op.attributes:
        raise executor.kernel.refusal(f"{op.name} with rounding mode {mode}", op)
    if x.dtype == np.dtype(bool) and op.name in ("arith.extsi", "arith.sitofp", "tpu.sitofp"):
        x = -jnp.asarray(x).astype(jnp.int32)  # a one-bit signed integer is 0 or -1
    if op.name == "arith.trunci" and dtype == np.dtype(bool):
        x = x & 1
    if op.name in ("arith.truncf", "tpu.truncf") and dtype == jnp.bfloat16:
        # On some hosts XLA leaves out a rounding that is widened back at once, whatever is asked of it; never this one.
        x = lax.reduce_precision(jnp.asarray(x), exponent_bits=8, mantissa_bits=7)
    executor.result(op, x.astype(dtype))


@rule("arith.extui", "arith.uitofp", "tpu.uitofp", attributes=("fastmath", "rounding_mode"))
def _convert_unsigned(executor: Executor, op: Op) -> None:
    x, dtype = executor[op.operands[0]], jax_dtype(op.results[0].type.dtype)
    if "to_nearest_even" not in str(op.attributes.get("rounding_mode", "to_nearest_even")):
        raise executor.kernel.refusal(f"{op.name} with rounding mode {op.attributes['rounding_mode']}", op)
    if x.dtype != np.dtype(bool):
        x = _as_unsigned(jnp.asarray(x))
    executor.result(op, x.astype(dtype))


@rule("arith.fptosi", "arith.fptoui", "tpu.fptosi", "tpu.fptoui", attributes=("rounding_mode", "fastmath"), checks=True)
def _float_to_int(executor: Executor, op: Op) -> None:
    # Out-of-range values saturate in vectors, as in XLA.
    x, dtype = jnp.asarray(executor[op.operands[0]]), jax_dtype(op.results[0].type.dtype)
    mode = str(op.attributes.get("rounding_mode", "towards_zero"))
    if "to_nearest_even" in mode:
        x = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    elif "towards_zero" not in mode:
        raise executor.kernel.refusal(f"{op.name} with rounding mode {mode}", op)
    if scalars.is_scalar(x, np.float32):
        executor.report(Kind.UNDEFINED_SCALAR, op, scalars.leaves_int32(x), NOT_AN_INTEGER.what)
    if op.name.endswith("ui"):
        executor.result(op, lax.bitcast_convert_type(x.astype(unsigned(dtype)), dtype))
    else:
        executor.result(op, x.astype(dtype))


@rule("arith.bitcast", "tpu.bitcast")
def _bitcast(executor: Executor, op: Op) -> None:
    executor.result(op, bitcast_array(jnp.asarray(executor[op.operands[0]]), jax_dtype(op.results[0].type.dtype)))


@rule("tpu.reciprocal", attributes=("approx", "full_range"))
def _reciprocal(executor: Executor, op: Op) -> None:
    x = executor[op.operands[0]]
    if op.attributes.get("approx"):  # how exact the hardware's is, is not published: as JAX computes it elsewhere
        x = lax.reduce_precision(jnp.reciprocal(lax.reduce_precision(x, 8, 7)), 8, 7)
    else:
        x = jnp.reciprocal(x)
    executor.result(op, x)


@rule("math.fma", attributes=("fastmath",))
def _fma(executor: Executor, op: Op) -> None:
    a, b, c = (executor[value] for value in op.operands)
    executor.result(op, a * b + c)


@rule("math.fpowi", attributes=("fastmath",))
def _fpowi(executor: Executor, op: Op) -> None:
    a, b = (executor[value] for value in op.operands)
    executor.result(op, jax.lax.pow(a, b))
