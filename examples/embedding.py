"""Embedding look-up: rows of table float32[16384, 8, 128] chosen by ids int32[2000] -> float32[2000, 8, 128].

Nothing is computed: HBM bandwidth bounds it, if enough copies are under way. A row is 4 KiB, which HBM moves in far
less time than a DMA takes to answer, and this start fetches one row per grid step. First mutation to try: many copies
per step, all started before the first is waited for.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "embedding"
PROBLEM_DESCRIPTION = "2000 rows of a table float32[16384, 1024], each row one tile of 8 x 128"

VOCABULARY, IDS = 16384, 2000
TILE = (8, 128)


def _copy(ids, row_ref, o_ref):
    o_ref[...] = row_ref[...]


def kernel_fn(table, ids):
    """table float32[VOCABULARY, 8, 128], ids int32[IDS] -> float32[IDS, 8, 128]."""
    return pl.pallas_call(
        _copy,
        out_shape=jax.ShapeDtypeStruct((IDS, *TILE), table.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(IDS,),
            in_specs=[pl.BlockSpec((1, *TILE), lambda i, ids: (ids[i], 0, 0))],
            out_specs=pl.BlockSpec((1, *TILE), lambda i, ids: (i, 0, 0)),
        ),
    )(ids, table)


def reference_fn(table, ids):
    """The same in plain jax.numpy."""
    return table[ids]


def generate_inputs(key):
    """A standard normal table and uniform ids."""
    table, ids = jax.random.split(key)
    return (
        jax.random.normal(table, (VOCABULARY, *TILE), jnp.float32),
        jax.random.randint(ids, (IDS,), 0, VOCABULARY, jnp.int32),
    )


def compute_flops():
    """None: it is a copy."""
    return 0


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    row = TILE[0] * TILE[1] * 4
    return {
        "grid": [IDS],
        "buffers": [
            {"name": "row", "size_bytes": row, "double_buffered": True},
            {"name": "o", "size_bytes": row, "double_buffered": True},
        ],
        "inputs": [{"name": "rows of the table", "size_bytes": IDS * row, "re_reads": 1}],
        "outputs": [{"name": "o", "size_bytes": IDS * row, "re_reads": 1}],
        "vreg_estimate_bytes": row,
    }
