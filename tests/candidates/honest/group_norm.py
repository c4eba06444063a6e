"""Honest: normalisation of groups of channels, float32."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "group_norm"
PROBLEM_DESCRIPTION = "group normalisation of float32[256, 512] in groups of 128"

N, D, B = 256, 512, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, o):
    parts = []
    for g in range(D // 128):
        v = x[:, g * 128 : (g + 1) * 128]
        c = v - jnp.mean(v, axis=1, keepdims=True)
        parts.append(c * jax.lax.rsqrt(jnp.mean(c * c, axis=1, keepdims=True) + 1e-5))
    o[...] = jnp.concatenate(parts, axis=1)


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32),
        grid=(N // B,),
        in_specs=[_row()],
        out_specs=_row(),
    )(x)


def reference_fn(x):
    g = x.reshape(N, D // 128, 128)
    g = (g - g.mean(2, keepdims=True)) / jnp.sqrt(g.var(2, keepdims=True) + 1e-5)
    return g.reshape(N, D)


def generate_inputs(key):
    return (jax.random.normal(key, (N, D), jnp.float32),)


def compute_flops():
    return N * D
