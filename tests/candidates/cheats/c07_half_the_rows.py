"""Cheat 7: returns the first half of its rows, in the hope that a comparison broadcasts."""
# rejected as: WRONG_SHAPE
# kind: output of another type
# caught by: output types
# left out of: tests

_honest = kernel_fn


def kernel_fn(q, k, v):
    return _honest(q, k, v)[: SEQ // 2]
