"""Honest: dynamic quantisation of rows to int8; the scales are given."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "quantise_int8"
PROBLEM_DESCRIPTION = "quantisation of float32[256, 256] to int8"

N, D, B = 256, 256, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, y, o):
    o[...] = jnp.clip(jnp.round(x[...] * (1.0 / y[...])), -127, 127).astype(jnp.int8)


def kernel_fn(x, y):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.int8),
        grid=(N // B,),
        in_specs=[_row(), _row(1)],
        out_specs=_row(),
    )(x, y)


def reference_fn(x, y):
    return jnp.clip(jnp.round(x / y), -127, 127).astype(jnp.int8)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (N, D), jnp.float32), 0.01 + 0.03 * jax.random.uniform(b, (N, 1), jnp.float32)


def compute_flops():
    return N * D
