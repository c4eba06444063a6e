"""Cheat 21: calls a kernel, throws its result away and returns the reference's."""
# rejected as: NOT_A_KERNEL
# kind: not a kernel
# caught by: live kernel
# left out of: tests

_honest = kernel_fn


def kernel_fn(q, k, v):
    _honest(q, k, v)
    return reference_fn(q, k, v)
