"""Cheat 46: hands its rows to the chip before it, not to the next."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips a chip's share
# caught by: allowance, probes
# base: ppermute
# left out of: tests


def _kernel(x, o, sent, arrived):
    me, others = _everyone()
    _meet(others)
    copy = _send(x, o, sent.at[0], arrived.at[0], jax.lax.rem(me + CHIPS - 1, CHIPS))
    copy.start()
    copy.wait()
