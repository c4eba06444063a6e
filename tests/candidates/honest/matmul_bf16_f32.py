"""Honest: a tiled matrix product, bfloat16 in and float32 out."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "matmul_bf16_f32"
PROBLEM_DESCRIPTION = "bfloat16[256, 512] times bfloat16[512, 256] in float32"

M, K, N = 256, 512, 256
BM, BK, BN = 128, 128, 128


def _kernel(x, w, o, acc):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    acc[...] += jnp.dot(x[...], w[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == K // BK - 1)
    def _():
        o[...] = acc[...].astype(o.dtype)


def kernel_fn(x, w):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((M, N), jnp.float32),
        grid=(M // BM, N // BN, K // BK),
        in_specs=[pl.BlockSpec((BM, BK), lambda i, j, k: (i, k)), pl.BlockSpec((BK, BN), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((BM, BN), jnp.float32)],
    )(x, w)


def reference_fn(x, w):
    return jnp.dot(x, w, preferred_element_type=jnp.float32)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (M, K), jnp.bfloat16), jax.random.normal(b, (K, N), jnp.bfloat16)


def compute_flops():
    return 2 * M * K * N
