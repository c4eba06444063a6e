"""Honest: a product of each pair of matrices of two batches, bfloat16."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "batched_matmul"
PROBLEM_DESCRIPTION = "batched product of bfloat16[8, 128, 256] and bfloat16[8, 256, 128]"

H, M, K, N = 8, 128, 256, 128


def _kernel(x, y, o):
    o[0] = jnp.dot(x[0], y[0], preferred_element_type=jnp.float32).astype(o.dtype)


def kernel_fn(x, y):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((H, M, N), x.dtype),
        grid=(H,),
        in_specs=[pl.BlockSpec((1, M, K), lambda h: (h, 0, 0)), pl.BlockSpec((1, K, N), lambda h: (h, 0, 0))],
        out_specs=pl.BlockSpec((1, M, N), lambda h: (h, 0, 0)),
    )(x, y)


def reference_fn(x, y):
    return jnp.einsum("hmk,hkn->hmn", x, y, preferred_element_type=jnp.float32).astype(x.dtype)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (H, M, K), jnp.bfloat16), jax.random.normal(b, (H, K, N), jnp.bfloat16)


def compute_flops():
    return 2 * H * M * K * N
