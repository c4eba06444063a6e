"""Digests of what a kernel reads, step by step, so that two executions can be compared and the place named where
they part.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import KernelModule, Op
from ratchet.tpu.mosaic.dtypes import bits, is_float, unsigned
from ratchet.tpu.mosaic.memory import Array

CELLS = 1 << 18
"""Digests kept of one kernel: 1 MiB. What a longer run reads after that shares the last one."""

_READERS = frozenset({"vector.load", "tpu.vector_load", "tpu.strided_load", "memref.load", "tpu.enqueue_dma"})


def places(kernel: KernelModule, outputs: int) -> list[Op | int]:
    """Where a kernel reads memory: its loads and DMAs in order, then each output's window when it is written back."""
    operations = list(kernel.operations())
    used = {value for op in operations for value in op.operands}
    # Pallas stores by a swap: it also loads what was there, and nobody uses that.
    readers = (op for op in operations if op.name in _READERS and (not op.results or used & set(op.results)))
    return [*readers, *range(outputs)]


def digest(value: Array) -> Array:
    """int32 scalar that changes with the bits of ``value`` and where they are."""
    if is_float(np.dtype(value.dtype)):
        value = lax.bitcast_convert_type(value, unsigned(np.dtype(value.dtype)))
    words = (lax.bitcast_convert_type(value, jnp.int32) if bits(value.dtype) == 32 else value.astype(jnp.int32)).ravel()
    mixed = (words ^ lax.iota(jnp.int32, words.size) * -1640531535) * -2048144789  # odd multipliers of known hashes
    mixed = (mixed ^ lax.shift_right_logical(mixed, 13)) * -1028477387
    return jnp.sum(mixed ^ lax.shift_right_logical(mixed, 16), dtype=jnp.int32)


def first_difference(kernel: KernelModule, outputs: int, a: np.ndarray, b: np.ndarray) -> tuple[Op | int, int] | None:
    """Place and linear grid step where two executions first read different data; ``None`` if not known."""
    apart = np.flatnonzero(a != b)
    if not apart.size or apart[0] == a.size - 1:
        return None
    step, number = divmod(int(apart[0]), len(known := places(kernel, outputs)))
    return known[number], step
