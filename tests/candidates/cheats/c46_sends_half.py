"""Cheat 46: sends half of its rows, and the other half stays as memory was."""
# rejected as: MEMORY_HAZARD
# kind: skips a chip's share
# caught by: unwritten memory
# base: ppermute
# left out of: tests


def _kernel(x, o, sent, arrived):
    me, others = _everyone()
    _meet(others)
    half = pl.ds(0, N // 2)
    copy = _send(x.at[half], o.at[half], sent.at[0], arrived.at[0], jax.lax.rem(me + 1, CHIPS))
    copy.start()
    copy.wait()
