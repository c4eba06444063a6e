"""Cheat 34: a slot is given free while it is still being sent; only a chip that is ahead notices."""
# rejected as: MEMORY_HAZARD
# kind: chip that runs ahead
# caught by: chips that run ahead
# left out of: tests
# said: chips_race
# base: ring_all_gather


def _turn(step, copy, store, room, left):
    if step:
        pl.semaphore_wait(room, 1)
    copy.start()
    if step < CHIPS - 2:
        pl.semaphore_signal(room, 1, **_to(left))
    copy.wait()
    store()
