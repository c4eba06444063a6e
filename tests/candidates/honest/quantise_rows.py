"""Honest: dynamic quantisation of rows to int8: the values and the scales."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "quantise_rows"
PROBLEM_DESCRIPTION = "quantisation of the rows of bfloat16[256, 512]"

N, D, B = 256, 512, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, q, s):
    v = x[...].astype(jnp.float32)
    scale = jnp.maximum(jnp.max(jnp.abs(v), axis=1, keepdims=True), 1e-8) * (1 / 127)
    q[...] = jnp.round(v / scale).astype(jnp.int8)
    s[...] = scale


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=[jax.ShapeDtypeStruct((N, D), jnp.int8), jax.ShapeDtypeStruct((N, 1), jnp.float32)],
        grid=(N // B,),
        in_specs=[_row()],
        out_specs=[_row(), _row(1)],
    )(x)


def reference_fn(x):
    x = x.astype(jnp.float32)
    scale = jnp.maximum(jnp.abs(x).max(1, keepdims=True), 1e-8) / 127
    return jnp.round(x / scale).astype(jnp.int8), scale


def generate_inputs(key):
    return (jax.random.normal(key, (N, D), jnp.bfloat16),)


def compute_flops():
    return 3 * N * D
