"""Honest: every chip collects the rows of all chips."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "all_gather"
PROBLEM_DESCRIPTION = "all-gather of float32[256, 256] over four chips"

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
    o[pl.ds(me * N, N)] = x[...]
    _meet(others)
    copies = [_send(x, o.at[pl.ds(me * N, N)], sent.at[k], arrived.at[k], other) for k, other in enumerate(others)]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.wait()


def _shard(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((CHIPS * N, D), x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.SemaphoreType.DMA((CHIPS,)), pltpu.SemaphoreType.DMA((CHIPS,))],
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
