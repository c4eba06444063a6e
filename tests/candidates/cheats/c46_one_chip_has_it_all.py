"""Cheat 46: one chip holds the answer, and the others say that they hold it too."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips a chip's share
# caught by: allowance, probes
# base: all_gather
# left out of: tests


def _kernel(x, o, sent, arrived):
    me, others = _everyone()
    o[...] = jnp.zeros_like(o)
    o[pl.ds(me * N, N)] = x[...]
    _meet(others)

    @pl.when(me > 0)
    def _():
        copy = _send(x, o.at[pl.ds(me * N, N)], sent.at[0], arrived.at[me], 0)
        copy.start()
        copy.wait_send()

    @pl.when(me == 0)
    def _():
        for other in range(1, CHIPS):
            _send(x, o.at[pl.ds(other * N, N)], sent.at[0], arrived.at[other], 0).wait_recv()
