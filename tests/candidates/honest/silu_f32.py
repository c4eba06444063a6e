"""Honest: x times its sigmoid, float32."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "silu_f32"
PROBLEM_DESCRIPTION = "silu of float32[256, 256]"

N, D, B = 256, 256, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, o):
    o[...] = x[...] / (1 + jnp.exp(-x[...]))


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32),
        grid=(N // B,),
        in_specs=[_row()],
        out_specs=_row(),
    )(x)


def reference_fn(x):
    return jax.nn.silu(x)


def generate_inputs(key):
    return (jax.random.normal(key, (N, D), jnp.float32),)


def compute_flops():
    return N * D
