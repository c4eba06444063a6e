"""Honest: rows of several groups, each with weights of its own; XLA makes the table of blocks beside the kernel."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "grouped_matmul"
PROBLEM_DESCRIPTION = "grouped product of bfloat16[512, 128] with 4 of bfloat16[128, 128]"

M, K, N, GROUPS, B = 512, 128, 128, 4, 64


def _kernel(table, x, w, o):
    o[...] = jnp.dot(x[...], w[0], preferred_element_type=jnp.float32).astype(o.dtype)


def kernel_fn(x, w, blocks):
    ends = jnp.cumsum(blocks)
    table = jnp.sum(jnp.arange(M // B)[:, None] >= ends[None], axis=1).astype(jnp.int32)
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(M // B,),
        in_specs=[
            pl.BlockSpec((B, K), lambda i, table: (i, 0)),
            pl.BlockSpec((1, K, N), lambda i, table: (table[i], 0, 0)),
        ],
        out_specs=pl.BlockSpec((B, N), lambda i, table: (i, 0)),
    )
    return pl.pallas_call(_kernel, out_shape=jax.ShapeDtypeStruct((M, N), jnp.bfloat16), grid_spec=grid)(table, x, w)


def reference_fn(x, w, blocks):
    group = jnp.repeat(jnp.arange(GROUPS), B * blocks, total_repeat_length=M)
    return jnp.einsum("mk,mkn->mn", x, w[group], preferred_element_type=jnp.float32).astype(x.dtype)


def generate_inputs(key):
    a, b = jax.random.split(key)
    blocks = jnp.array([3, 0, 4, 1], jnp.int32)
    return jax.random.normal(a, (M, K), jnp.bfloat16), jax.random.normal(b, (GROUPS, K, N), jnp.bfloat16), blocks


def compute_flops():
    return 2 * M * K * N
