"""Honest: a sum of squares, one number in SMEM, float32."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "square_sum"
PROBLEM_DESCRIPTION = "sum of squares of float32[512, 256] as a scalar in SMEM"

N, D, B = 512, 256, 128


def _kernel(x, o):
    @pl.when(pl.program_id(0) == 0)
    def _():
        o[0, 0] = 0.0

    v = x[...]
    o[0, 0] += jnp.sum(v * v)


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        grid=(N // B,),
        in_specs=[pl.BlockSpec((B, D), lambda i: (i, 0))],
        out_specs=pl.BlockSpec(memory_space=pltpu.SMEM),
        out_shape=jax.ShapeDtypeStruct((1, 1), jnp.float32),
    )(x)


def reference_fn(x):
    return jnp.sum(x * x).reshape(1, 1)


def generate_inputs(key):
    return (jax.random.normal(key, (N, D)),)


def compute_flops():
    return 2 * N * D
