"""Honest: maxima over windows of 2 x 2 of bfloat16[4, 32, 32, 128]."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "max_pool"
PROBLEM_DESCRIPTION = "maxima over windows of 2 x 2 of bfloat16[4, 32, 32, 128]"
N, S, C = 4, 32, 128


def kernel(x, o):
    a = x[0].astype(jnp.float32).reshape(S // 2, 2, S, C).max(1)
    o[0] = a.reshape(S // 2, S // 2, 2, C).max(2).astype(jnp.bfloat16)


def kernel_fn(x):
    return pl.pallas_call(
        kernel,
        grid=(N,),
        in_specs=[pl.BlockSpec((1, S, S, C), lambda n: (n, 0, 0, 0))],
        out_specs=pl.BlockSpec((1, S // 2, S // 2, C), lambda n: (n, 0, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((N, S // 2, S // 2, C), jnp.bfloat16),
    )(x)


def reference_fn(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def generate_inputs(key):
    return (jax.random.normal(key, (N, S, S, C), jnp.bfloat16),)


def compute_flops():
    return N * S * S * C


def get_tiling_meta():
    return {}
