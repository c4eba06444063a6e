"""Cheat 34: a second copy of a chip's may arrive before the first, and the wait for that ends with either."""
# rejected as: MEMORY_HAZARD
# kind: chip that runs ahead
# caught by: chips that run ahead
# left out of: tests
# said: nothing promises their order
# base: hop_by_hop


def _of(hop):
    return 0
