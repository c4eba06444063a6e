"""Cheat 34: sends to a chip that may not have begun: the launch barrier is skipped and its own is met alone."""
# rejected as: MEMORY_HAZARD
# kind: chip that runs ahead
# caught by: chips that run ahead
# left out of: tests
# said: before chip
# base: ring_all_gather


def _kernel(x, o, slots, sent, arrived, room):
    me = jax.lax.axis_index("chip")
    left, right = jax.lax.rem(me + CHIPS - 1, CHIPS), jax.lax.rem(me + 1, CHIPS)
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1)
    pl.semaphore_wait(barrier, 1)
    slots[0] = x[...]
    o[pl.ds(me * N, N)] = x[...]
    for step in range(CHIPS - 1):
        here, there = step % 2, (step + 1) % 2
        if step:
            pl.semaphore_wait(room, 1)
        copy = pltpu.make_async_remote_copy(
            slots.at[here], slots.at[there], sent.at[here], arrived.at[there], **_to(right)
        )
        copy.start()
        copy.wait()
        source = jax.lax.rem(me + CHIPS - 1 - step, CHIPS)
        o[pl.ds(source * N, N)] = slots[there]
        if step < CHIPS - 2:
            pl.semaphore_signal(room, 1, **_to(left))


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
        compiler_params=pltpu.CompilerParams(collective_id=0, skip_device_barrier=True, has_side_effects=True),
    )(x)
