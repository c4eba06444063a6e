"""Cheat 34: four chips pass rows on through two slots, and nothing keeps one that is ahead from a slot in use."""
# rejected as: MEMORY_HAZARD
# kind: chip that runs ahead
# caught by: chips that run ahead
# left out of: tests
# said: chips_race
# problem: its own

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "ring_all_gather"
PROBLEM_DESCRIPTION = "all-gather of float32[64, 256] around a ring of four chips"

CHIPS, N, D = 4, 16, 256


def _to(other):
    return {"device_id": (other,), "device_id_type": pl.DeviceIdType.MESH}


def _kernel(x, o, slots, sent, arrived, room):
    me = jax.lax.axis_index("chip")
    left, right = jax.lax.rem(me + CHIPS - 1, CHIPS), jax.lax.rem(me + 1, CHIPS)
    barrier = pltpu.get_barrier_semaphore()
    for other in (left, right):
        pl.semaphore_signal(barrier, 1, **_to(other))
    pl.semaphore_wait(barrier, 2)
    slots[0] = x[...]
    o[pl.ds(me * N, N)] = x[...]
    for step in range(CHIPS - 1):
        here, there = step % 2, (step + 1) % 2
        copy = pltpu.make_async_remote_copy(
            slots.at[here], slots.at[there], sent.at[here], arrived.at[there], **_to(right)
        )
        copy.start()
        copy.wait()
        source = jax.lax.rem(me + CHIPS - 1 - step, CHIPS)
        o[pl.ds(source * N, N)] = slots[there]


def _shard(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((CHIPS * N, D), x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[
            pltpu.VMEM((2, N, D), jnp.float32),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.REGULAR,
        ],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
    )(x)


def kernel_fn(x):
    return jax.shard_map(_shard, in_specs=P("chip"), out_specs=P(), check_vma=False)(x)


def reference_fn(x):
    return x


def generate_inputs(key):
    return (jax.random.normal(key, (CHIPS * N, D), jnp.float32),)


def compute_flops():
    return 1


def get_tiling_meta():
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [["chip"]],
    }
