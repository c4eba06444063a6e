"""Honest: a step of gradient descent with momentum, parameters in bfloat16, in place."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "sgd_momentum"
PROBLEM_DESCRIPTION = "momentum step on bfloat16[256, 256]"

N, D, B = 256, 256, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(p, m, g, p2, m2):
    new = 0.9 * m[...] + g[...].astype(jnp.float32)
    m2[...] = new
    p2[...] = (p[...].astype(jnp.float32) - 0.05 * new).astype(p2.dtype)


def kernel_fn(p, m, g):
    return pl.pallas_call(
        _kernel,
        out_shape=[jax.ShapeDtypeStruct((N, D), jnp.bfloat16), jax.ShapeDtypeStruct((N, D), jnp.float32)],
        grid=(N // B,),
        in_specs=[_row()] * 3,
        out_specs=[_row()] * 2,
        input_output_aliases={0: 0, 1: 1},
    )(p, m, g)


def reference_fn(p, m, g):
    m = 0.9 * m + g.astype(jnp.float32)
    return (p.astype(jnp.float32) - 0.05 * m).astype(p.dtype), m


def generate_inputs(key):
    a, b, c = jax.random.split(key, 3)
    return (
        jax.random.normal(a, (N, D), jnp.bfloat16),
        jax.random.normal(b, (N, D), jnp.float32),
        jax.random.normal(c, (N, D), jnp.bfloat16),
    )


def compute_flops():
    return 4 * N * D
