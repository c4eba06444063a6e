"""Honest: a tiled product of int8 matrices into int32."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "int8_matmul"
PROBLEM_DESCRIPTION = "int8[256, 512] times int8[512, 256] into int32"

M, K, N = 256, 512, 256
BM, BK, BN = 128, 128, 128


def _kernel(x, w, o, acc):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    acc[...] += jnp.dot(x[...], w[...], preferred_element_type=jnp.int32)

    @pl.when(pl.program_id(2) == K // BK - 1)
    def _():
        o[...] = acc[...].astype(o.dtype)


def kernel_fn(x, w):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((M, N), jnp.int32),
        grid=(M // BM, N // BN, K // BK),
        in_specs=[pl.BlockSpec((BM, BK), lambda i, j, k: (i, k)), pl.BlockSpec((BK, BN), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((BM, BN), jnp.int32)],
    )(x, w)


def reference_fn(x, w):
    return jnp.dot(x, w, preferred_element_type=jnp.int32)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return tuple(jax.random.randint(k, s, -127, 128, jnp.int32).astype(jnp.int8) for k, s in ((a, (M, K)), (b, (K, N))))


def compute_flops():
    return 2 * M * K * N
