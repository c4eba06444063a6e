"""Honest: softmax over rows, float32."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "row_softmax"
PROBLEM_DESCRIPTION = "softmax over the rows of float32[256, 1024]"

N, D, B = 256, 1024, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, o):
    e = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    o[...] = e / jnp.sum(e, axis=1, keepdims=True)


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32),
        grid=(N // B,),
        in_specs=[_row()],
        out_specs=_row(),
    )(x)


def reference_fn(x):
    return jax.nn.softmax(x, axis=-1)


def generate_inputs(key):
    return (3 * jax.random.normal(key, (N, D), jnp.float32),)


def compute_flops():
    return 4 * N * D
