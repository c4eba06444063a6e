"""Honest: an ordinary sum under a scope named as an operation."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "named_send"
PROBLEM_DESCRIPTION = "x + y of float32[256, 256]"

N, D, B = 256, 256, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, y, o):
    with jax.named_scope("send("):
        o[...] = x[...] + y[...]


def kernel_fn(x, y):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32),
        grid=(N // B,),
        in_specs=[_row(), _row()],
        out_specs=_row(),
    )(x, y)


def reference_fn(x, y):
    return x + y


def generate_inputs(key):
    return tuple(jax.random.normal(part, (N, D), jnp.float32) for part in jax.random.split(key, 2))


def compute_flops():
    return N * D
