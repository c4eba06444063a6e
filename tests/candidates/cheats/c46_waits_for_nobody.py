"""Cheat 46: waits for a signal that no chip sends."""
# rejected as: DEADLOCK
# kind: chips out of step
# caught by: semaphores
# base: all_gather
# left out of: tests


def _meet(others):
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1, device_id=(others[0],), device_id_type=pl.DeviceIdType.MESH)
    pl.semaphore_wait(barrier, CHIPS - 1)
