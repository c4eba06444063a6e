"""Bits that the core draws: others than the TPU's, which nobody outside of it knows, and the same for the same seeds.

A kernel is modelled with them. Its values say nothing of those on a TPU, so a judge refuses it (``Program.draws``).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.rules import Unsupported, rule
from ratchet.tpu.mosaic.state import DRAWN

_IMPLEMENTATION = "threefry2x32"


@rule("tpu.prng_set_seed_32")
def _seed(executor: Executor, op: Op) -> None:
    key = jax.random.key(0, impl=_IMPLEMENTATION)
    for seed in op.operands:
        key = jax.random.fold_in(key, jnp.asarray(executor[seed], jnp.int32))
    executor.memory[DRAWN] = jax.random.key_data(key)


@rule("tpu.prng_random_bits")
def _bits(executor: Executor, op: Op) -> None:
    wanted = op.results[0].type
    if wanted.dtype != "i32":
        raise Unsupported(f"{op.name} of {wanted.dtype}")
    key = jax.random.wrap_key_data(executor.memory[DRAWN], impl=_IMPLEMENTATION)
    now, later = jax.random.split(key)
    executor.memory[DRAWN] = jax.random.key_data(later)
    executor.result(op, jax.random.bits(now, wanted.shape, jnp.uint32).view(jnp.int32))
