"""Explicit operations of a tpu7x's matrix units: what is staged, loaded and accumulated in each is kept as memory.

Semantics: the docstrings of ``jax.experimental.pallas.tpu``. A kernel may leave nothing in a unit, so each grid step
begins with empty ones here, and one that ends with a full one is a finding.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic.arrays import decode, encode, is_float, jax_dtype
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.memory import Buffer
from ratchet.tpu.mosaic.ops.vector import product
from ratchet.tpu.mosaic.rules import Unsupported, integer, rule
from ratchet.tpu.mosaic.units import Unit

_PUSHED_TWICE = "a staging register is pushed to that holds a matrix which was never loaded"
_EMPTY = "a matrix is multiplied by that was never pushed"


def _unit(executor: Executor, op: Op) -> Unit:
    return executor.units[integer(op, "mxu_index")]


def _get(executor: Executor, buffer: Buffer) -> Any:
    return decode(executor.memory[buffer], buffer.dtype)


def _set(executor: Executor, buffer: Buffer, value: Any) -> None:
    executor.memory[buffer] = encode(jnp.asarray(value, buffer.dtype))


@rule("tpu.matmul_push_rhs", attributes=("mxu_index", "staging_register", "transpose"), checks=True)
def _push_rhs(executor: Executor, op: Op) -> None:
    staged = _unit(executor, op).staging[integer(op, "staging_register", 0)]
    rhs = jnp.asarray(executor[op.operands[0]])
    executor.report(Kind.MATRIX_UNIT, op, _get(executor, staged.full) != 0, _PUSHED_TWICE)
    _set(executor, staged.data, rhs.T if op.attributes.get("transpose") else rhs)
    _set(executor, staged.full, 1)


@rule("tpu.matmul_acc_lhs", attributes=("acc", "mxu_index", "load_staged_rhs"), checks=True)
def _acc_lhs(executor: Executor, op: Op) -> None:
    """What is staged is loaded first, where that is asked for; the product is added to what is accumulated."""
    unit, lhs = _unit(executor, op), jnp.asarray(executor[op.operands[0]])
    if "load_staged_rhs" in op.attributes:
        staged = unit.staging[integer(op, "load_staged_rhs")]
        executor.report(Kind.MATRIX_UNIT, op, _get(executor, staged.full) == 0, _EMPTY)
        _set(executor, unit.loaded.data, _get(executor, staged.data))
        _set(executor, unit.loaded.full, 1)
        _set(executor, staged.full, 0)
    else:
        executor.report(Kind.MATRIX_UNIT, op, _get(executor, unit.loaded.full) == 0, _EMPTY)
    rhs = _get(executor, unit.loaded.data)
    if lhs.dtype != rhs.dtype:
        raise Unsupported(f"{op.name} of {lhs.dtype} by {rhs.dtype}")
    total = unit.accumulators[integer(op, "acc")]
    if is_float(total.data.dtype) != is_float(np.dtype(lhs.dtype)) or total.data.shape[0] != lhs.shape[0]:
        raise Unsupported(f"{op.name} of {lhs.dtype}{lhs.shape} into {total.data.dtype}{total.data.shape}")
    added = product(executor, lhs, rhs, (((1,), (0,)), ((), ())), 1)
    _set(executor, total.data, lax.add(_get(executor, total.data), added.astype(total.data.dtype)))
    _set(executor, total.full, 1)


@rule("tpu.matmul_pop", attributes=("acc", "mxu_index"))
def _pop(executor: Executor, op: Op) -> None:
    """What is accumulated, which is zero from then on."""
    total = _unit(executor, op).accumulators[integer(op, "acc")]
    out = op.results[0].type
    if (total.data.shape, total.data.dtype) != (out.shape, jax_dtype(out.dtype)):
        raise Unsupported(f"{op.name} of {out} from {total.data.dtype}{total.data.shape}")
    executor.result(op, _get(executor, total.data))
    _set(executor, total.data, jnp.zeros(out.shape, total.data.dtype))
    _set(executor, total.full, 0)
