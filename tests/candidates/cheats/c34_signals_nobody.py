"""Cheat 34: the last signal goes to a chip that is not there, so that every chip ends with its semaphores at zero."""
# rejected as: OUT_OF_BOUNDS
# kind: out of bounds
# caught by: bounds
# left out of: tests
# said: device numbers are 0 to 3
# base: ring_all_gather

_honest_kernel = _kernel


def _kernel(x, o, slots, sent, arrived, room):
    _honest_kernel(x, o, slots, sent, arrived, room)
    pl.semaphore_signal(room, 1, **_to(CHIPS + jax.lax.axis_index("chip")))
