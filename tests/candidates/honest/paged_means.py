"""Honest: means over the first rows of pages that a table lists, as many as each sequence is long."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "paged_means"
PROBLEM_DESCRIPTION = "means of 16 sequences in pages of float32[64, 16, 128], by table and length"

S, PAGES, P, D, MOST = 16, 64, 16, 128, 4


def _kernel(table, lengths, page, o, acc):
    s, k = pl.program_id(0), pl.program_id(1)

    @pl.when(k == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    row = k * P + jax.lax.broadcasted_iota(jnp.int32, (P, D), 0)
    acc[...] += jnp.sum(jnp.where(row < lengths[s], page[0], 0.0), axis=0, keepdims=True)
    o[0] = acc[...] / lengths[s].astype(jnp.float32)


def kernel_fn(table, lengths, pages):
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(S, MOST),
        in_specs=[pl.BlockSpec((1, P, D), lambda s, k, table, lengths: (table[s, k], 0, 0))],
        out_specs=pl.BlockSpec((1, 1, D), lambda s, k, table, lengths: (s, 0, 0)),
        scratch_shapes=[pltpu.VMEM((1, D), jnp.float32)],
    )
    shape = jax.ShapeDtypeStruct((S, 1, D), jnp.float32)
    return pl.pallas_call(_kernel, out_shape=shape, grid_spec=grid)(table, lengths, pages)


def reference_fn(table, lengths, pages):
    rows = pages[table].reshape(S, MOST * P, D)
    own = (jnp.arange(MOST * P)[None] < lengths[:, None])[:, :, None]
    return jnp.sum(jnp.where(own, rows, 0.0), axis=1, keepdims=True) / lengths[:, None, None].astype(jnp.float32)


def generate_inputs(key):
    a, b, c = jax.random.split(key, 3)
    table = jax.random.randint(a, (S, MOST), 0, PAGES, jnp.int32)
    lengths = jax.random.randint(b, (S,), 1, MOST * P + 1, jnp.int32)
    return table, lengths, jax.random.normal(c, (PAGES, P, D), jnp.float32)


def compute_flops():
    return S * MOST * P * D
