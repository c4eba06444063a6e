"""Honest: a gated linear unit in bfloat16."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "swiglu"
PROBLEM_DESCRIPTION = "silu(x) * y of bfloat16[256, 256]"

N, D, B = 256, 256, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, y, o):
    v = x[...].astype(jnp.float32)
    o[...] = (v * jax.nn.sigmoid(v) * y[...].astype(jnp.float32)).astype(o.dtype)


def kernel_fn(x, y):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.bfloat16),
        grid=(N // B,),
        in_specs=[_row(), _row()],
        out_specs=_row(),
    )(x, y)


def reference_fn(x, y):
    return (jax.nn.silu(x.astype(jnp.float32)) * y.astype(jnp.float32)).astype(x.dtype)


def generate_inputs(key):
    return tuple(jax.random.normal(part, (N, D), jnp.bfloat16) for part in jax.random.split(key, 2))


def compute_flops():
    return N * D
