"""Honest: a stencil of nine points along the last axis, float32."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "wide_stencil"
PROBLEM_DESCRIPTION = "nine-point stencil along the rows of float32[64, 1024]"

N, D, B = 64, 1024, 32


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


TAPS = (0.02, -0.1, 0.3, -0.7, 1.0, -0.7, 0.3, -0.1, 0.02)


def _kernel(x, o):
    padded = jnp.pad(x[...], ((0, 0), (4, 124)))
    total = jnp.zeros((B, D), jnp.float32)
    for tap, weight in enumerate(TAPS):
        total = total + weight * padded[:, tap : tap + D]
    o[...] = total


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32),
        grid=(N // B,),
        in_specs=[_row()],
        out_specs=_row(),
    )(x)


def reference_fn(x):
    padded = jnp.pad(x, ((0, 0), (4, 4)))
    return sum(weight * padded[:, tap : tap + D] for tap, weight in enumerate(TAPS))


def generate_inputs(key):
    return (jax.random.normal(key, (N, D), jnp.float32),)


def compute_flops():
    return 18 * N * D
