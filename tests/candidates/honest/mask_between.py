"""Honest: 1 where x is between two other arrays, int32."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "mask_between"
PROBLEM_DESCRIPTION = "float32[256, 256] between two others"

N, D, B = 256, 256, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, y, z, o):
    o[...] = ((x[...] > y[...]) & (x[...] <= z[...])).astype(jnp.int32)


def kernel_fn(x, y, z):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.int32),
        grid=(N // B,),
        in_specs=[_row(), _row(), _row()],
        out_specs=_row(),
    )(x, y, z)


def reference_fn(x, y, z):
    return jnp.logical_and(x > y, x <= z).astype(jnp.int32)


def generate_inputs(key):
    return tuple(jax.random.normal(part, (N, D), jnp.float32) for part in jax.random.split(key, 3))


def compute_flops():
    return N * D
