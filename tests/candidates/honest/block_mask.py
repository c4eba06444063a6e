"""Honest: a product with a block-sparse matrix, whose block mask XLA makes from the mask of elements."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "block_mask"
PROBLEM_DESCRIPTION = "float32 mask of blocks times bfloat16[256, 256]"

M, K, N, B = 256, 256, 128, 128


def _kernel(keep, x, mask, w, o, acc):
    i, k = pl.program_id(0), pl.program_id(1)

    @pl.when(k == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    @pl.when(keep[i, k] != 0)
    def _():
        kept = jnp.where(mask[...] != 0, x[...].astype(jnp.float32), 0.0).astype(x.dtype)
        acc[...] += jnp.dot(kept, w[...], preferred_element_type=jnp.float32)

    @pl.when(k == K // B - 1)
    def _():
        o[...] = acc[...].astype(o.dtype)


def kernel_fn(x, mask, w):
    keep = (mask.reshape(M // B, B, K // B, B) != 0).any((1, 3)).astype(jnp.int32)
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(M // B, K // B),
        in_specs=[
            pl.BlockSpec((B, B), lambda i, k, keep: (i, k)),
            pl.BlockSpec((B, B), lambda i, k, keep: (i, k)),
            pl.BlockSpec((B, N), lambda i, k, keep: (k, 0)),
        ],
        out_specs=pl.BlockSpec((B, N), lambda i, k, keep: (i, 0)),
        scratch_shapes=[pltpu.VMEM((B, N), jnp.float32)],
    )
    shape = jax.ShapeDtypeStruct((M, N), jnp.bfloat16)
    return pl.pallas_call(_kernel, out_shape=shape, grid_spec=grid)(keep, x, mask, w)


def reference_fn(x, mask, w):
    return jnp.dot(jnp.where(mask != 0, x, 0), w, preferred_element_type=jnp.float32).astype(x.dtype)


def generate_inputs(key):
    a, b, c = jax.random.split(key, 3)
    mask = jax.random.bernoulli(c, 0.3, (M, K)).astype(jnp.int32).at[:B, B:].set(0)
    return jax.random.normal(a, (M, K), jnp.bfloat16), mask, jax.random.normal(b, (K, N), jnp.bfloat16)


def compute_flops():
    return 2 * M * K * N // 2
