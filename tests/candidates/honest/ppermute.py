"""Honest: every chip hands its rows to the next. Other exchanges are put behind it."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "ppermute"
PROBLEM_DESCRIPTION = "a shift of float32[256, 256] by one of four chips"

CHIPS, N, D = 4, 64, 256


def _everyone():
    me = jax.lax.axis_index("chip")
    return me, [jax.lax.rem(me + step, CHIPS) for step in range(1, CHIPS)]


def _meet(others):
    barrier = pltpu.get_barrier_semaphore()
    for other in others:
        pl.semaphore_signal(barrier, 1, device_id=(other,), device_id_type=pl.DeviceIdType.MESH)
    pl.semaphore_wait(barrier, CHIPS - 1)


def _send(source, target, sent, arrived, other):
    return pltpu.make_async_remote_copy(
        source, target, sent, arrived, device_id=(other,), device_id_type=pl.DeviceIdType.MESH
    )


def _kernel(x, o, sent, arrived):
    me, others = _everyone()
    _meet(others)
    copy = _send(x, o, sent.at[0], arrived.at[0], jax.lax.rem(me + 1, CHIPS))
    copy.start()
    copy.wait()


def _shard(x, rows=N, scratch=()):
    """``rows`` of the output, and scratch before the semaphores."""
    whole = pl.BlockSpec(memory_space=pltpu.VMEM)
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((rows, D), x.dtype),
        in_specs=[whole],
        out_specs=whole,
        scratch_shapes=[*scratch, pltpu.SemaphoreType.DMA((CHIPS,)), pltpu.SemaphoreType.DMA((CHIPS,))],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
    )(x)


def kernel_fn(x):
    return jax.shard_map(_shard, in_specs=P("chip"), out_specs=P("chip"), check_vma=False)(x)


def reference_fn(x):
    return jnp.roll(x, N, axis=0)


def generate_inputs(key):
    return (jax.random.normal(key, (CHIPS * N, D), jnp.float32),)


def compute_flops():
    return 1


def get_tiling_meta():
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [["chip"]],
    }
