"""The arrays of a kernel's operands, as its memory holds them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.signature import Kernel, Operand
from ratchet.tpu.mosaic.dtypes import bits, jax_dtype
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.memory import Array, encode
from ratchet.values.status import Refusal, Status


def in_hbm(executor: Executor, kernel: Kernel, operand: Operand, shape: tuple[int, ...], array: Array | None) -> Array:
    """The HBM array of an operand, padded so that every window of a ragged last block is inside."""
    if array is None:
        array = executor.poison(shape, jax_dtype(operand.argument.type.dtype))
    else:
        array = encode(as_kernel_dtype(array, jax_dtype(operand.argument.type.dtype)))
    windows = [
        o.window for o in kernel.operands
        if o.window is not None and (o is operand or (operand.alias is not None and o.is_output != operand.is_output
                                                      and o.index == operand.alias))
    ]  # fmt: skip
    low, high = [0] * len(shape), [0] * len(shape)
    for window in windows:
        for d, (dim, block) in enumerate(zip(shape, window.shape, strict=True)):
            low[d] = max(low[d], window.low[d])
            extra = window.high[d] if window.element else -dim % block
            high[d] = max(high[d], extra, block - dim)
    if not any(low) and not any(high):
        return array
    if any(low) and operand.alias is not None:
        raise executor.kernel.refusal("an aliased operand with padding before it")
    padded = tuple(a + dim + b for a, dim, b in zip(low, shape, high, strict=True))
    padding = executor.poison(padded, jax_dtype(operand.argument.type.dtype), executor.padding)
    return lax.dynamic_update_slice(padding, array, tuple(low))


def as_kernel_dtype(array: Array, dtype: np.dtype) -> Array:
    """Signless in the kernel, signed or not outside: the same bits."""
    if array.dtype == dtype:
        return array
    if not jnp.issubdtype(array.dtype, jnp.integer) or bits(array.dtype) != bits(np.dtype(dtype)):
        raise Refusal(Status.CANNOT_VERIFY, f"an operand of {array.dtype} where the kernel has {dtype}")
    return lax.bitcast_convert_type(array, dtype)
