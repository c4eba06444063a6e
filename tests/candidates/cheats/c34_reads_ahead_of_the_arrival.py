"""Cheat 34: one semaphore for both slots: what arrived first is taken for what was meant."""
# rejected as: MEMORY_HAZARD
# kind: chip that runs ahead
# caught by: chips that run ahead
# left out of: tests
# said: chips_race
# base: ring_all_gather


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
        copy = pltpu.make_async_remote_copy(slots.at[here], slots.at[there], sent.at[here], arrived.at[0], **_to(right))
        copy.start()
        copy.wait_send()
        copy.wait_recv()
        source = jax.lax.rem(me + CHIPS - 1 - step, CHIPS)
        o[pl.ds(source * N, N)] = slots[there]
