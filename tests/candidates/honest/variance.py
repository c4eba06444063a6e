"""Honest: the unbiased variance of rows, float32."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "variance"
PROBLEM_DESCRIPTION = "unbiased variance of the rows of float32[256, 512]"

N, D, B = 256, 512, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, o):
    c = x[...] - jnp.mean(x[...], axis=1, keepdims=True)
    o[...] = jnp.sum(c * c, axis=1, keepdims=True) / (D - 1)


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, 1), jnp.float32),
        grid=(N // B,),
        in_specs=[_row()],
        out_specs=_row(1),
    )(x)


def reference_fn(x):
    return jnp.var(x, axis=1, ddof=1, keepdims=True)


def generate_inputs(key):
    return (jax.random.normal(key, (N, D), jnp.float32),)


def compute_flops():
    return 4 * N * D
