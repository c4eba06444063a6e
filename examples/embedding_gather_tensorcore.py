"""Embedding look-up on the TensorCores: rows of table float32[8192, 256] chosen by ids int32[4096] -> [4096, 256].

The problem of embedding_gather.py. Ids are prefetched scalars, and each row is a copy of its own; all of a block
are under way at once. Mutation to try next: rows of the next block under way while this one is waited for.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "embedding_gather"
PROBLEM_DESCRIPTION = "4096 rows of a table float32[8192, 256]"

VOCABULARY, WIDTH, IDS = 8192, 256, 4096

BLOCK = 1024


def _copy(ids, table_hbm, o_ref, arrived):
    i = pl.program_id(0)

    for n in range(BLOCK):
        row = table_hbm.at[pl.ds(ids[i * BLOCK + n], 1)]
        pltpu.make_async_copy(row, o_ref.at[pl.ds(n, 1)], arrived).start()
    pltpu.make_async_copy(o_ref, o_ref, arrived).wait()  # as many bytes as all of the block


def kernel_fn(table, ids):
    """table float32[VOCABULARY, WIDTH], ids int32[IDS] -> float32[IDS, WIDTH]."""
    return pl.pallas_call(
        _copy,
        out_shape=jax.ShapeDtypeStruct((IDS, WIDTH), table.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(IDS // BLOCK,),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec((BLOCK, WIDTH), lambda i, ids: (i, 0)),
            scratch_shapes=[pltpu.SemaphoreType.DMA],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )(ids, table)


def reference_fn(table, ids):
    """The same in plain jax.numpy."""
    return table[ids]


def generate_inputs(key):
    """A standard normal table and uniform ids."""
    table, ids = jax.random.split(key)
    return (
        jax.random.normal(table, (VOCABULARY, WIDTH), jnp.float32),
        jax.random.randint(ids, (IDS,), 0, VOCABULARY, jnp.int32),
    )


def compute_flops():
    """None: it is a copy."""
    return 0


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    row = WIDTH * 4
    return {
        "grid": [IDS // BLOCK],
        "buffers": [{"name": "o", "size_bytes": BLOCK * row, "double_buffered": True}],
        "inputs": [{"name": "rows of the table", "size_bytes": IDS * row, "re_reads": 1}],
        "outputs": [{"name": "o", "size_bytes": IDS * row, "re_reads": 1}],
        "vreg_estimate_bytes": 0,
    }
