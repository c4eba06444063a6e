"""Cheat 34: waits until its rows have left, and passes on those that are still coming."""
# rejected as: MEMORY_HAZARD
# kind: chip that runs ahead
# caught by: chips that run ahead
# left out of: tests
# said: the first wait that needs it is at
# base: hop_by_hop


def _kernel(x, o, sent, arrived):
    me, others = _everyone()
    o[pl.ds(me * N, N)] = x[...]
    _meet(others)
    started = []
    for hop in range(CHIPS - 1):
        rows = o.at[pl.ds(jax.lax.rem(me + CHIPS - hop, CHIPS) * N, N)]
        started.append(_send(rows, rows, sent.at[hop], arrived.at[hop], others[0]))
        started[-1].start()
        started[-1].wait_send()
    for copy in started:
        copy.wait_recv()
