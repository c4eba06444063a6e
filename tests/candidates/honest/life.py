"""Honest: four turns of Conway's life on an int8 torus [64, 128]."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "life"
PROBLEM_DESCRIPTION = "four turns of Conway's life on an int8 torus [64, 128]"
S, C = 64, 128


def turn(x, roll):
    rows = x + roll(x, 1, 0) + roll(x, -1, 0)
    n = rows + roll(rows, 1, 1) + roll(rows, -1, 1) - x
    return ((n == 3) | (n == 2) & (x == 1)).astype(jnp.int32)


def kernel(x, o):
    y = x[...].astype(jnp.int32)
    for _ in range(4):
        y = turn(y, lambda v, by, axis: pltpu.roll(v, by % v.shape[axis], axis))
    o[...] = y.astype(jnp.int8)


def kernel_fn(x):
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((S, C), jnp.int8))(x)


def reference_fn(x):
    y = (x.astype(jnp.int32) != 0).astype(jnp.int32) if False else x.astype(jnp.int32)
    for _ in range(4):
        y = turn(y, jnp.roll)
    return y.astype(jnp.int8)


def generate_inputs(key):
    return (jax.random.bernoulli(key, 0.4, (S, C)).astype(jnp.int8),)


def compute_flops():
    return 4 * 10 * S * C


def get_tiling_meta():
    return {}
