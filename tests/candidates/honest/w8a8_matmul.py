"""Honest: rows quantised to int8 as they come, by a reciprocal where the reference divides, times int8 weights."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "w8a8_matmul"
PROBLEM_DESCRIPTION = "rows quantised to int8 as they come, times int8 weights, to bfloat16"

M, K, N, B = 256, 512, 256, 128


def _kernel(x, w, ws, o):
    v = x[...].astype(jnp.float32)
    m = jnp.maximum(jnp.max(jnp.abs(v), axis=1, keepdims=True), 1e-6)
    s = m / 127.0
    q = jnp.round(v * (127.0 / m)).astype(jnp.int8)
    p = jnp.dot(q, w[...], preferred_element_type=jnp.int32)
    o[...] = (p.astype(jnp.float32) * s * ws[...]).astype(o.dtype)


def kernel_fn(x, w, ws):
    return pl.pallas_call(
        _kernel,
        grid=(M // B, N // B),
        in_specs=[
            pl.BlockSpec((B, K), lambda i, j: (i, 0)),
            pl.BlockSpec((K, B), lambda i, j: (0, j)),
            pl.BlockSpec((1, B), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((B, B), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((M, N), jnp.bfloat16),
    )(x, w, ws)


def reference_fn(x, w, ws):
    v = x.astype(jnp.float32)
    s = jnp.maximum(jnp.max(jnp.abs(v), axis=1, keepdims=True), 1e-6) / 127.0
    q = jnp.round(v / s).astype(jnp.int8)
    return (jnp.matmul(q, w, preferred_element_type=jnp.int32).astype(jnp.float32) * s * ws).astype(jnp.bfloat16)


def generate_inputs(key):
    a, b, c = jax.random.split(key, 3)
    return (
        jax.random.normal(a, (M, K), jnp.bfloat16),
        jax.random.randint(b, (K, N), -127, 128, jnp.int8),
        jax.random.uniform(c, (1, N), minval=0.5, maxval=2.0) / 127,
    )


def compute_flops():
    return 2 * M * N * K
