"""Honest: 6 stored blocks [128, 128] a row of blocks times bfloat16[1024, 256], columns from a table."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "block_sparse"
PROBLEM_DESCRIPTION = "6 stored blocks [128, 128] a row of blocks times bfloat16[1024, 256], columns from a table"
BR, NNZ, S, N, KB = 4, 6, 128, 256, 8


def kernel(cols, w, x, o, acc):

    @pl.when(pl.program_id(1) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    acc[...] += jnp.dot(w[0, 0], x[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(1) == NNZ - 1)
    def _():
        o[...] = acc[...].astype(jnp.bfloat16)


def kernel_fn(cols, w, x):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(BR, NNZ),
        in_specs=[
            pl.BlockSpec((1, 1, S, S), lambda i, j, c: (i, j, 0, 0)),
            pl.BlockSpec((S, N), lambda i, j, c: (c[i, j], 0)),
        ],
        out_specs=pl.BlockSpec((S, N), lambda i, j, c: (i, 0)),
        scratch_shapes=[pltpu.VMEM((S, N), jnp.float32)],
    )
    return pl.pallas_call(kernel, grid_spec=spec, out_shape=jax.ShapeDtypeStruct((BR * S, N), jnp.bfloat16))(cols, w, x)


def reference_fn(cols, w, x):
    blocks = x.reshape(KB, S, N)[cols]
    return (
        jnp.einsum("ijab,ijbn->ian", w, blocks, preferred_element_type=jnp.float32)
        .reshape(BR * S, N)
        .astype(jnp.bfloat16)
    )


def generate_inputs(key):
    k = jax.random.split(key, 3)
    return (
        jax.random.randint(k[0], (BR, NNZ), 0, KB),
        jax.random.normal(k[1], (BR, NNZ, S, S), jnp.bfloat16),
        jax.random.normal(k[2], (KB * S, N), jnp.bfloat16),
    )


def compute_flops():
    return 2 * BR * NNZ * S * S * N


def get_tiling_meta():
    return {}
