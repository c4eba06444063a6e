"""Honest: an operation on a number of rows that no block divides."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "ragged_rows"
PROBLEM_DESCRIPTION = "1 / (1 + x^2) of float32[250, 256]"

N, D, B = 250, 256, 64


def _kernel(x, o):
    o[...] = 1.0 / (1.0 + x[...] * x[...])


def kernel_fn(x):
    spec = pl.BlockSpec((B, D), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((N, D), jnp.float32)
    return pl.pallas_call(_kernel, out_shape=shape, grid=(pl.cdiv(N, B),), in_specs=[spec], out_specs=spec)(x)


def reference_fn(x):
    return jnp.reciprocal(1.0 + jnp.square(x))


def generate_inputs(key):
    return (jax.random.normal(key, (N, D), jnp.float32),)


def compute_flops():
    return 3 * N * D
