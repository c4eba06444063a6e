"""Honest: the mean over the first axis, accumulated over grid steps, bfloat16 in."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "column_mean"
PROBLEM_DESCRIPTION = "mean over the columns of bfloat16[1024, 256]"

N, D, B = 1024, 256, 128


def _kernel(x, o):
    @pl.when(pl.program_id(0) == 0)
    def _():
        o[...] = jnp.zeros_like(o)

    o[...] += jnp.sum(x[...].astype(jnp.float32), axis=0, keepdims=True) / N


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((1, D), jnp.float32),
        grid=(N // B,),
        in_specs=[pl.BlockSpec((B, D), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((1, D), lambda i: (0, 0)),
    )(x)


def reference_fn(x):
    return jnp.mean(x.astype(jnp.float32), axis=0, keepdims=True)


def generate_inputs(key):
    return (jax.random.normal(key, (N, D), jnp.bfloat16),)


def compute_flops():
    return N * D
