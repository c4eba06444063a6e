"""Honest: bitonic sorting of 8 rows of 128 float32 along the rows, by rotations."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "bitonic_sort"
PROBLEM_DESCRIPTION = "bitonic sorting of 8 rows of 128 float32 along the rows, by rotations"
R, N = 64, 128


def kernel(x, o):
    y, at = (x[...], jax.lax.broadcasted_iota(jnp.int32, (8, N), 1))
    k = 2
    while k <= N:
        j = k // 2
        while j:
            low = at & j == 0
            other = jnp.where(low, pltpu.roll(y, N - j, 1), pltpu.roll(y, j, 1))
            up = at & k == 0
            y = jnp.where(low == up, jnp.minimum(y, other), jnp.maximum(y, other))
            j //= 2
        k *= 2
    o[...] = y


def kernel_fn(x):
    rows = pl.BlockSpec((8, N), lambda i: (i, 0))
    return pl.pallas_call(
        kernel, grid=(R // 8,), in_specs=[rows], out_specs=rows, out_shape=jax.ShapeDtypeStruct((R, N), jnp.float32)
    )(x)


def reference_fn(x):
    return jnp.sort(x, axis=1)


def generate_inputs(key):
    return (jax.random.normal(key, (R, N)),)


def compute_flops():
    return R * N * 28


def get_tiling_meta():
    return {}
