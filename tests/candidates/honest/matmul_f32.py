"""Honest: a tiled product of float32 at the default precision. Other products are put behind it."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "matmul_f32"
PROBLEM_DESCRIPTION = "float32[256, 512] times float32[512, 256], default precision"

M, K, N = 256, 512, 256
BM, BK, BN = 128, 128, 128


def _product(x, w):
    return jnp.dot(x, w, preferred_element_type=jnp.float32)


def _finished(total):
    return total


def _kernel(x, w, o, acc):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    acc[...] += _product(x[...], w[...])

    @pl.when(pl.program_id(2) == K // BK - 1)
    def _():
        o[...] = _finished(acc[...]).astype(o.dtype)


def kernel_fn(x, w):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.eval_shape(reference_fn, x, w),
        grid=(M // BM, N // BN, K // BK),
        in_specs=[pl.BlockSpec((BM, BK), lambda i, j, k: (i, k)), pl.BlockSpec((BK, BN), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((BM, BN), jax.eval_shape(_product, x, w).dtype)],
    )(x, w)


def reference_fn(x, w):
    return x @ w


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (M, K), jnp.float32), jax.random.normal(b, (K, N), jnp.float32)


def compute_flops():
    return 2 * M * K * N
