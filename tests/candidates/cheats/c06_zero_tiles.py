"""Cheat 6: takes a block of queries for zeros where its first element is nearly zero, and leaves it out."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: usual values only
# caught by: mixed inputs, allowance, probes
# left out of: tests
# base: c06_zero_blocks

BQ = 128


def _looked_at(q_ref):
    return q_ref[0:1]
