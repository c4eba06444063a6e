"""Reduce-scatter on the four chips of a 2x2 slice: x float32[4, 2048, 512], an addend per chip -> the sum, by rows.

One addition an element: the links between chips bound it. Each chip sends three quarters of its addend, 3 MiB, in sums
that grow as they go around. Each neighbour gets half of what is for the chip opposite, adds its own and sends it on;
the other half of a neighbour's own quarter is sent as it is. Mutation to try next: smaller pieces, so that fewer bytes
wait for a sum.
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


def _reduce(x_ref, o_ref, relayed, passed, heard, sent, arrived):
    me = jax.lax.axis_index("chip")
    neighbours = jax.lax.rem(me + 1, CHIPS), jax.lax.rem(me + CHIPS - 1, CHIPS)
    opposite = jax.lax.rem(me + 2, CHIPS)

    def addend(chip, half):
        """This chip's share of half the rows that ``chip`` will hold."""
        return x_ref.at[0, pl.ds(chip * SHARD + half * HALF, HALF)]

    def send(source, target, way, message):
        return pltpu.make_async_remote_copy(
            source, target, sent.at[way, message], arrived.at[way, message],
            device_id=(neighbours[way],), device_id_type=pl.DeviceIdType.MESH,
        )  # fmt: skip

    barrier = pltpu.get_barrier_semaphore()
    for neighbour in neighbours:
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,), device_id_type=pl.DeviceIdType.MESH)
    pl.semaphore_wait(barrier, 2)
    ways = range(2)  # to the right, to the left
    relays = [send(addend(opposite, way), relayed.at[way], way, 0) for way in ways]
    plain = [send(addend(neighbours[way], 1 - way), heard.at[way, 1 - way], way, 1) for way in ways]
    sums = [send(passed.at[way], heard.at[way, way], way, 2) for way in ways]
    for copy in (*relays, *plain):
        copy.start()
    for way in ways:
        relays[way].wait_recv()
        passed[way] = relayed[way] + addend(neighbours[way], way)[...]
        sums[way].start()
    for copy in (*plain, *sums):
        copy.wait()
    for copy in relays:
        copy.wait_send()
    for half in ways:
        o_ref[pl.ds(half * HALF, HALF)] = addend(me, half)[...] + heard[0, half] + heard[1, half]


def _shard(x):
    halves, semaphores = pltpu.VMEM((2, HALF, WIDTH), jnp.float32), pltpu.SemaphoreType.DMA((2, 3))
    return pl.pallas_call(
        _reduce,
        out_shape=jax.ShapeDtypeStruct((SHARD, WIDTH), x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[
            halves,
            halves,
            pltpu.VMEM((2, 2, HALF, WIDTH), jnp.float32),
            semaphores,
            semaphores,
        ],
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
    return (CHIPS - 1) * ROWS * WIDTH


def get_tiling_meta():
    """The mesh and where x is; then what the author believes of one chip."""
    shard = SHARD * WIDTH * 4
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [["chip"]],
        "grid": [1],
        "buffers": [
            {"name": "x", "size_bytes": CHIPS * shard, "double_buffered": False},
            {"name": "relayed", "size_bytes": shard, "double_buffered": False},
            {"name": "passed", "size_bytes": shard, "double_buffered": False},
            {"name": "heard", "size_bytes": 2 * shard, "double_buffered": False},
        ],
        "inputs": [{"name": "x", "size_bytes": CHIPS * shard, "re_reads": 1}],
        "outputs": [{"name": "o", "size_bytes": shard, "re_reads": 1}],
        "vreg_estimate_bytes": 0,
    }
