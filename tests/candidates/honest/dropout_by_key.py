"""Honest: dropout whose bits are drawn in the kernel, by a key that is an operand, folded with the block's number."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "dropout_by_key"
PROBLEM_DESCRIPTION = "dropout of float32[256, 256] by a key, in blocks of 64 rows"

N, D, B = 256, 256, 64


def _kernel(words, x, o):
    key = jax.random.wrap_key_data(jnp.stack([words[0], words[1]]), impl="threefry2x32")
    drawn = jax.random.uniform(jax.random.fold_in(key, pl.program_id(0)), (B, D))
    o[...] = jnp.where(drawn < 0.9, x[...] * (1 / 0.9), 0.0)


def kernel_fn(words, x):
    rows = pl.BlockSpec((B, D), lambda i: (i, 0))
    return pl.pallas_call(
        _kernel,
        grid=(N // B,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), rows],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(words, x)


def reference_fn(words, x):
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    drawn = [jax.random.uniform(jax.random.fold_in(key, i), (B, D)) for i in range(N // B)]
    return jnp.where(jnp.concatenate(drawn) < 0.9, x / 0.9, 0.0)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.bits(a, (2,), jnp.uint32), jax.random.normal(b, (N, D), jnp.float32)


def compute_flops():
    return N * D


def get_tiling_meta():
    return {}
