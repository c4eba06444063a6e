"""Cheat 34: sends to a chip that may not have begun: the launch barrier is skipped and its own is met alone."""
# rejected as: MEMORY_HAZARD
# kind: chip that runs ahead
# caught by: chips that run ahead
# left out of: tests
# said: before chip
# base: ring_all_gather

PARAMETERS = PARAMETERS | {"skip_device_barrier": True}


def _barrier(left, right):
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1)
    pl.semaphore_wait(barrier, 1)
