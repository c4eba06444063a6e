"""Honest: the tanh approximation of the Gaussian error linear unit, bfloat16."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "gelu"
PROBLEM_DESCRIPTION = "gelu of bfloat16[256, 256]"

N, D, B = 256, 256, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, o):
    v = x[...].astype(jnp.float32)
    o[...] = (0.5 * v * (1 + jnp.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))).astype(o.dtype)


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.bfloat16),
        grid=(N // B,),
        in_specs=[_row()],
        out_specs=_row(),
    )(x)


def reference_fn(x):
    return jax.nn.gelu(x.astype(jnp.float32)).astype(x.dtype)


def generate_inputs(key):
    return (jax.random.normal(key, (N, D), jnp.bfloat16),)


def compute_flops():
    return N * D
