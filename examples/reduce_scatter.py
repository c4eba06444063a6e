"""Reduce-scatter on the four chips of a 2x2 slice: x float32[4, 2048, 512], an addend per chip -> the sum, by rows.

One addition an element: the links between chips bound it. Each chip sends three quarters of its addend, 3 MiB, in sums
that grow as they go around. Half of each goes around the ring in one direction, half in the other. Mutation to try
next: halves of the opposite chip's quarter to the neighbours, who send their sums on: two hops in place of three.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "reduce_scatter"
PROBLEM_DESCRIPTION = "sum of 4 addends float32[2048, 512], one on each of 4 chips, its rows sharded over them"

CHIPS, ROWS, WIDTH = 4, 2048, 512
SHARD = ROWS // CHIPS
HALF = SHARD // 2
STEPS = CHIPS - 1


def _reduce(x_ref, o_ref, passed, heard, sent, arrived):
    me = jax.lax.axis_index("chip")
    right, left = jax.lax.rem(me + 1, CHIPS), jax.lax.rem(me + CHIPS - 1, CHIPS)

    def addend(chip, half):
        """This chip's share of half the rows that ``chip`` will hold."""
        return x_ref[0, pl.ds(jax.lax.rem(chip + 2 * CHIPS, CHIPS) * SHARD + half * HALF, HALF)]

    barrier = pltpu.get_barrier_semaphore()
    for neighbour in (left, right):
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,), device_id_type=pl.DeviceIdType.MESH)
    pl.semaphore_wait(barrier, 2)
    for way, sign in enumerate((1, -1)):
        passed[way, 0] = addend(me - sign, way)
    for step in range(STEPS):
        copies = [
            pltpu.make_async_remote_copy(
                passed.at[way, step], heard.at[way, step], sent.at[way, step], arrived.at[way, step],
                device_id=(to,), device_id_type=pl.DeviceIdType.MESH,
            )
            for way, to in enumerate((right, left))
        ]  # fmt: skip
        for copy in copies:
            copy.start()
        for way, (sign, copy) in enumerate(zip((1, -1), copies, strict=True)):
            copy.wait()
            total = heard[way, step] + addend(me - sign * (step + 2), way)
            if step < STEPS - 1:
                passed[way, step + 1] = total
            else:
                o_ref[pl.ds(way * HALF, HALF)] = total


def _shard(x):
    sums = pltpu.VMEM((2, STEPS, HALF, WIDTH), jnp.float32)
    return pl.pallas_call(
        _reduce,
        out_shape=jax.ShapeDtypeStruct((SHARD, WIDTH), x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[sums, sums, pltpu.SemaphoreType.DMA((2, STEPS)), pltpu.SemaphoreType.DMA((2, STEPS))],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
    )(x)


def kernel_fn(x):
    """x float32[CHIPS, ROWS, WIDTH], an addend on each chip -> float32[ROWS, WIDTH], its rows over the chips."""
    return jax.shard_map(_shard, in_specs=P("chip"), out_specs=P("chip"), check_vma=False)(x)


def reference_fn(x):
    """The same in plain jax.numpy."""
    return jnp.sum(x, axis=0)


def generate_inputs(key):
    """Standard normal addends."""
    return (jax.random.normal(key, (CHIPS, ROWS, WIDTH), jnp.float32),)


def compute_flops():
    """Useful FLOPs: three additions for each element of the sum."""
    return STEPS * ROWS * WIDTH


def get_tiling_meta():
    """The mesh and where x is; then what the author believes of one chip."""
    shard = SHARD * WIDTH * 4
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [["chip"]],
        "grid": [1],
        "buffers": [
            {"name": "x", "size_bytes": CHIPS * shard, "double_buffered": False},
            {"name": "passed", "size_bytes": STEPS * shard, "double_buffered": False},
            {"name": "heard", "size_bytes": STEPS * shard, "double_buffered": False},
        ],
        "inputs": [{"name": "x", "size_bytes": CHIPS * shard, "re_reads": 1}],
        "outputs": [{"name": "o", "size_bytes": shard, "re_reads": 1}],
        "vreg_estimate_bytes": 0,
    }
