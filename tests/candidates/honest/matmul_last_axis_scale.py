"""Honest: an int8 matrix product, scaled per row and column, bfloat16 out."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "matmul_last_axis_scale"
PROBLEM_DESCRIPTION = "dequantised int8[256, 512] times int8[512, 256]"

M, K, N, B = 256, 512, 256, 64


def _kernel(x, w, sx, sw, o):
    total = jnp.dot(x[...], w[...], preferred_element_type=jnp.int32)
    o[...] = (total.astype(jnp.float32) * sx[...] * sw[...]).astype(o.dtype)


def kernel_fn(x, w, sx, sw):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((M, N), jnp.bfloat16),
        grid=(M // B,),
        in_specs=[
            pl.BlockSpec((B, K), lambda i: (i, 0)),
            pl.BlockSpec((K, N), lambda i: (0, 0)),
            pl.BlockSpec((B, 1), lambda i: (i, 0)),
            pl.BlockSpec((1, N), lambda i: (0, 0)),
        ],
        out_specs=pl.BlockSpec((B, N), lambda i: (i, 0)),
    )(x, w, sx, sw)


def reference_fn(x, w, sx, sw):
    return (jnp.dot(x, w, preferred_element_type=jnp.int32) * (sx * sw)).astype(jnp.bfloat16)


def generate_inputs(key):
    a, b, c, d = jax.random.split(key, 4)
    x = jax.random.randint(a, (M, K), -127, 128, jnp.int32).astype(jnp.int8)
    w = jax.random.randint(b, (K, N), -127, 128, jnp.int32).astype(jnp.int8)
    return x, w, jax.random.uniform(c, (M, 1), jnp.float32) + 0.1, jax.random.uniform(d, (1, N), jnp.float32) + 0.1


def compute_flops():
    return 2 * M * K * N
