"""Embedding look-up: rows of table float32[16384, 8, 128] chosen by ids int32[2000] -> float32[2000, 8, 128].

Nothing is computed: HBM bandwidth bounds it, if enough copies are under way. The copies of BLOCK rows of the table into
VMEM are under way while the block before is waited for and sent to the output. Mutation to try next: no stay in VMEM,
rows straight from HBM to HBM.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "embedding"
PROBLEM_DESCRIPTION = "2000 rows of a table float32[16384, 1024], each row one tile of 8 x 128"

VOCABULARY, IDS = 16384, 2000
TILE = (8, 128)

BLOCK = 100
STEPS = IDS // BLOCK


def _copy(ids, table_hbm, o_ref, ring, arrived):
    i = pl.program_id(0)

    def fetch(block):
        slot = jax.lax.rem(block, 2)
        for n in range(BLOCK):
            pltpu.make_async_copy(table_hbm.at[ids[block * BLOCK + n]], ring.at[slot, n], arrived.at[slot]).start()

    pl.when(i == 0)(lambda: fetch(i))
    pl.when(i + 1 < STEPS)(lambda: fetch(i + 1))
    slot = jax.lax.rem(i, 2)
    pltpu.make_async_copy(ring.at[slot], ring.at[slot], arrived.at[slot]).wait()  # as many bytes as all of the block
    o_ref[...] = ring[slot]


def kernel_fn(table, ids):
    """table float32[VOCABULARY, 8, 128], ids int32[IDS] -> float32[IDS, 8, 128]."""
    return pl.pallas_call(
        _copy,
        out_shape=jax.ShapeDtypeStruct((IDS, *TILE), table.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(STEPS,),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec((BLOCK, *TILE), lambda i, ids: (i, 0, 0)),
            scratch_shapes=[pltpu.VMEM((2, BLOCK, *TILE), table.dtype), pltpu.SemaphoreType.DMA((2,))],
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
        "grid": [STEPS],
        "buffers": [
            {"name": "ring", "size_bytes": BLOCK * row, "double_buffered": True},
            {"name": "o", "size_bytes": BLOCK * row, "double_buffered": True},
        ],
        "inputs": [{"name": "rows of the table", "size_bytes": IDS * row, "re_reads": 1}],
        "outputs": [{"name": "o", "size_bytes": IDS * row, "re_reads": 1}],
        "vreg_estimate_bytes": 0,
    }
