"""Honest: the fast Walsh-Hadamard transform of rows: butterflies, float32."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "hadamard"
PROBLEM_DESCRIPTION = "Walsh-Hadamard transform of float32[64, 256]"

N, D, B = 64, 256, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, o):
    v, c = x[...], jax.lax.broadcasted_iota(jnp.int32, (B, D), 1)
    step = 1
    while step < D:
        other = jnp.where(c & step == 0, jnp.roll(v, -step, 1), jnp.roll(v, step, 1))
        v = jnp.where(c & step == 0, v + other, other - v)
        step *= 2
    o[...] = v / 16.0


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32),
        grid=(N // B,),
        in_specs=[_row()],
        out_specs=_row(),
    )(x)


def reference_fn(x):
    h = jnp.ones((1, 1), jnp.float32)
    while len(h) < D:
        h = jnp.block([[h, h], [h, -h]])
    return jnp.dot(x, h / 16.0, precision="highest")


def generate_inputs(key):
    return (jax.random.normal(key, (N, D), jnp.float32),)


def compute_flops():
    return N * D
