"""Cheat 32: an output block is visited twice, steps apart, and each visit writes half of it."""
# rejected as: MEMORY_HAZARD
# kind: block that comes back
# caught by: unwritten memory
# base: c32_adds_to_a_block_that_left
# left out of: tests, quick


def _first(y, o):
    o[: B // 2] = y[: B // 2]


def _second(y, o):
    o[B // 2 :] = y[B // 2 :]
