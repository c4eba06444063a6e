"""Honest: rows become columns, bfloat16."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "transpose"
PROBLEM_DESCRIPTION = "transpose of bfloat16[256, 128]"

N, D, B = 256, 128, 128


def _kernel(x, o):
    o[...] = x[...].astype(jnp.float32).T.astype(o.dtype)


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((D, N), x.dtype),
        grid=(N // B,),
        in_specs=[pl.BlockSpec((B, D), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((D, B), lambda i: (0, i)),
    )(x)


def reference_fn(x):
    return x.T


def generate_inputs(key):
    return (jax.random.normal(key, (N, D), jnp.bfloat16),)


def compute_flops():
    return 1
