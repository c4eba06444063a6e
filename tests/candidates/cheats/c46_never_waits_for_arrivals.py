"""Cheat 46: waits for what it sends and never for what it is sent."""
# rejected as: MEMORY_HAZARD
# kind: chips out of step
# caught by: semaphores
# base: ppermute
# left out of: tests


def _kernel(x, o, sent, arrived):
    me, others = _everyone()
    _meet(others)
    copy = _send(x, o, sent.at[0], arrived.at[0], jax.lax.rem(me + 1, CHIPS))
    copy.start()
    copy.wait_send()
