"""Honest: lower Cholesky factors of 4 positive float32[64, 64], column by column."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "cholesky"
PROBLEM_DESCRIPTION = "lower Cholesky factors of 4 positive float32[64, 64], column by column"
N, S = 4, 64


def kernel(a, o, w):
    w[...] = a[0]
    row, col = (jax.lax.broadcasted_iota(jnp.int32, (S, S), d) for d in (0, 1))
    o[...] = jnp.zeros_like(o)

    @pl.loop(0, S)
    def _(j):
        m = w[...]
        c = jnp.sum(jnp.where(col == j, m, 0.0), axis=1, keepdims=True)
        d = jnp.sum(jnp.where((row == j) & (col == j), m, 0.0), keepdims=True)
        lower = jnp.where(row[:, :1] >= j, c * jax.lax.rsqrt(d), 0.0)
        lt = jnp.sum(jnp.where(row == col, lower, 0.0), axis=0, keepdims=True)
        o[0] += jnp.where(col == j, lower, 0.0)
        w[...] = m - lower * lt


def kernel_fn(a):
    b = pl.BlockSpec((1, S, S), lambda i: (i, 0, 0))
    return pl.pallas_call(
        kernel,
        grid=(N,),
        in_specs=[b],
        out_specs=b,
        out_shape=jax.ShapeDtypeStruct((N, S, S), jnp.float32),
        scratch_shapes=[pltpu.VMEM((S, S), jnp.float32)],
    )(a)


def reference_fn(a):
    return jnp.linalg.cholesky(a)


def generate_inputs(key):
    x = jax.random.normal(key, (N, S, S))
    return (jnp.einsum("nij,nkj->nik", x, x, precision="highest") / S + 0.5 * jnp.eye(S),)


def compute_flops():
    return N * S**3 // 3


def get_tiling_meta():
    return {}
