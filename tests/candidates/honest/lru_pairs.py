"""Honest: a complex linear recurrence as pairs of float32[512, 128], in chunks of 64 steps."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "lru_pairs"
PROBLEM_DESCRIPTION = "a complex linear recurrence as pairs of float32[512, 128], in chunks of 64 steps"
S, D, B = 512, 128, 64


def kernel(ar, ai, xr, xi, yr, yi, hr, hi):

    @pl.when(pl.program_id(0) == 0)
    def _():
        hr[...] = jnp.zeros_like(hr)
        hi[...] = jnp.zeros_like(hi)

    def body(t, h):
        r, i = h
        r, i = (ar[...] * r - ai[...] * i + xr[pl.ds(t, 1)], ar[...] * i + ai[...] * r + xi[pl.ds(t, 1)])
        yr[pl.ds(t, 1)], yi[pl.ds(t, 1)] = (r, i)
        return (r, i)

    hr[...], hi[...] = jax.lax.fori_loop(0, B, body, (hr[...], hi[...]))


def kernel_fn(ar, ai, xr, xi):
    one, rows = (pl.BlockSpec((1, D), lambda i: (0, 0)), pl.BlockSpec((B, D), lambda i: (i, 0)))
    return pl.pallas_call(
        kernel,
        grid=(S // B,),
        in_specs=[one, one, rows, rows],
        out_specs=(rows, rows),
        out_shape=(jax.ShapeDtypeStruct((S, D), jnp.float32),) * 2,
        scratch_shapes=[pltpu.VMEM((1, D), jnp.float32)] * 2,
    )(ar, ai, xr, xi)


def reference_fn(ar, ai, xr, xi):

    def body(h, x):
        r, i = h
        h = (ar[0] * r - ai[0] * i + x[0], ar[0] * i + ai[0] * r + x[1])
        return (h, h)

    zero = jnp.zeros_like(ar[0])
    return jax.lax.scan(body, (zero, zero), (xr, xi))[1]


def generate_inputs(key):
    k = jax.random.split(key, 4)
    size, angle = (
        jax.random.uniform(k[0], (1, D), jnp.float32, 0.8, 0.99),
        jax.random.uniform(k[1], (1, D), jnp.float32, 0.0, 3.0),
    )
    return (
        size * jnp.cos(angle),
        size * jnp.sin(angle),
        jax.random.normal(k[2], (S, D)),
        jax.random.normal(k[3], (S, D)),
    )


def compute_flops():
    return 8 * S * D


def get_tiling_meta():
    return {}
