"""Embedding look-up on the SparseCores: rows of table float32[8192, 256] chosen by ids int32[4096] -> [4096, 256].

Each vector subcore has an equal part of the ids, which it fetches at once. It asks for all rows, WINDOW by one stream,
and sends each window on when it is there. Mutation to try next: rows too many for a subcore's memory, in a ring.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

KERNEL_NAME = "embedding_gather"
PROBLEM_DESCRIPTION = "4096 rows of a table float32[8192, 256]"

VOCABULARY, WIDTH, IDS = 8192, 256, 4096

WINDOW = 32


def kernel_fn(table, ids):
    """table float32[VOCABULARY, WIDTH], ids int32[IDS] -> float32[IDS, WIDTH]."""
    mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore")
    each = IDS // mesh.size

    def look_up(table, ids, o, own, rows, arrived, left):
        number = jax.lax.axis_index("core") * jax.lax.axis_size("subcore") + jax.lax.axis_index("subcore")
        pltpu.sync_copy(ids.at[pl.ds(number * each, each)], own)

        steps = range(each // WINDOW)
        arriving = [
            pltpu.make_async_copy(
                table.at[own.at[pl.ds(step * WINDOW, WINDOW)]], rows.at[pl.ds(step * WINDOW, WINDOW)], arrived.at[step]
            )
            for step in steps
        ]
        for copy in arriving:
            copy.start()
        leaving = [
            pltpu.make_async_copy(
                rows.at[pl.ds(step * WINDOW, WINDOW)], o.at[pl.ds(number * each + step * WINDOW, WINDOW)], left
            )
            for step in steps
        ]
        for arrives, leaves in zip(arriving, leaving, strict=True):
            arrives.wait()
            leaves.start()
        for copy in leaving:
            copy.wait()

    return pl.kernel(
        look_up,
        out_type=jax.ShapeDtypeStruct((IDS, WIDTH), table.dtype),
        mesh=mesh,
        scratch_types=[
            pltpu.VMEM((each,), ids.dtype),
            pltpu.VMEM((each, WIDTH), table.dtype),
            pltpu.SemaphoreType.DMA((each // WINDOW,)),
            pltpu.SemaphoreType.DMA,
        ],
    )(table, ids)


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
    """What the author believes about traffic; the memories of the SparseCores are not the TensorCore's VMEM."""
    row = WIDTH * 4
    return {
        "buffers": [],
        "inputs": [{"name": "rows of the table", "size_bytes": IDS * row, "re_reads": 1}],
        "outputs": [{"name": "o", "size_bytes": IDS * row, "re_reads": 1}],
        "vreg_estimate_bytes": 0,
    }
