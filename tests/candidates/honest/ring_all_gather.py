"""Honest: rows walk around the ring in two slots; a chip sends only where the next one has made room."""
# base: all_gather

KERNEL_NAME = "ring_all_gather"
PROBLEM_DESCRIPTION = "all-gather of float32[64, 256] around a ring of four chips"

N = 16
PARAMETERS = {"collective_id": 0, "has_side_effects": True}


def _to(other):
    return {"device_id": (other,), "device_id_type": pl.DeviceIdType.MESH}


def _barrier(left, right):
    barrier = pltpu.get_barrier_semaphore()
    for other in (left, right):
        pl.semaphore_signal(barrier, 1, **_to(other))
    pl.semaphore_wait(barrier, 2)


def _copy(slots, sent, arrived, here, there, right):
    return pltpu.make_async_remote_copy(slots.at[here], slots.at[there], sent.at[here], arrived.at[there], **_to(right))


def _turn(step, copy, store, room, left):
    if step:
        pl.semaphore_wait(room, 1)
    copy.start()
    copy.wait()
    store()
    if step < CHIPS - 2:
        pl.semaphore_signal(room, 1, **_to(left))


def _kernel(x, o, slots, sent, arrived, room):
    me = jax.lax.axis_index("chip")
    left, right = jax.lax.rem(me + CHIPS - 1, CHIPS), jax.lax.rem(me + 1, CHIPS)
    _barrier(left, right)
    slots[0] = x[...]
    o[pl.ds(me * N, N)] = x[...]
    for step in range(CHIPS - 1):
        here, there = step % 2, (step + 1) % 2

        def store(step=step, there=there):
            source = jax.lax.rem(me + CHIPS - 1 - step, CHIPS)
            o[pl.ds(source * N, N)] = slots[there]

        _turn(step, _copy(slots, sent, arrived, here, there, right), store, room, left)


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
        compiler_params=pltpu.CompilerParams(**PARAMETERS),
    )(x)


def kernel_fn(x):
    return jax.shard_map(_shard, in_specs=P("chip"), out_specs=P(), check_vma=False)(x)
