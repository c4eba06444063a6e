"""Several vectors of a narrow type in one vector of words, element by element, and back."""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic.dtypes import bits, is_float, jax_dtype, unsigned
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.rules import rule


@rule("tpu.pack_elementwise", attributes=("target_type",))
def _pack_elementwise(executor: Executor, op: Op) -> None:
    """The first vector in the lowest bits. Integers lose their upper bits, floats are rounded to the nearest even."""
    packed, word = jax_dtype(op.attributes["target_type"]), jax_dtype(op.results[0].type.dtype)
    vectors = [jnp.asarray(executor[value]) for value in op.operands]
    if is_float(packed) != is_float(np.dtype(vectors[0].dtype)) or bits(packed) < 8:
        raise executor.kernel.refusal(f"tpu.pack_elementwise of {vectors[0].dtype} to {packed}", op)
    parts = [
        lax.bitcast_convert_type(vector.astype(packed), unsigned(packed)).astype(unsigned(word)) << n * bits(packed)
        for n, vector in enumerate(vectors)
    ]
    executor.result(op, lax.bitcast_convert_type(reduce(jnp.bitwise_or, parts), word))


@rule("tpu.unpack_elementwise", attributes=("source_type", "index"))
def _unpack_elementwise(executor: Executor, op: Op) -> None:
    """The vector that was packed as number ``index``; integers keep their sign."""
    packed, target = jax_dtype(op.attributes["source_type"]), jax_dtype(op.results[0].type.dtype)
    words = jnp.asarray(executor[op.operands[0]])
    if is_float(packed) != is_float(target) or bits(packed) < 8 or is_float(np.dtype(words.dtype)):
        raise executor.kernel.refusal(f"tpu.unpack_elementwise of {packed} in {words.dtype} to {target}", op)
    low = int(str(op.attributes["index"])) * bits(packed)
    own = (lax.bitcast_convert_type(words, unsigned(np.dtype(words.dtype))) >> low).astype(unsigned(packed))
    executor.result(op, lax.bitcast_convert_type(own, packed).astype(target))
