"""Cheat 34: four chips pass rows on through two slots, and nothing keeps one that is ahead from a slot in use."""
# rejected as: MEMORY_HAZARD
# kind: chip that runs ahead
# caught by: chips that run ahead
# left out of: tests
# said: chips_race
# base: ring_all_gather


def _turn(step, copy, store, room, left):
    copy.start()
    copy.wait()
    store()
