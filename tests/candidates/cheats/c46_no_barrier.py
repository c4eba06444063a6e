"""Cheat 46: sends to chips that may not have begun, without the barrier."""
# rejected as: MEMORY_HAZARD, DEADLOCK, CANNOT_VERIFY
# kind: no barrier between chips
# caught by: other hazards, semaphores, late copies, deadlocks
# base: all_gather
# left out of: tests


def _meet(others):
    pass


def _shard(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((CHIPS * N, D), x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.SemaphoreType.DMA((CHIPS,)), pltpu.SemaphoreType.DMA((CHIPS,))],
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
    )(x)
