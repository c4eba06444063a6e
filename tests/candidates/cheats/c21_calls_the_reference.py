"""Cheat 21: the kernel is the reference."""
# rejected as: NOT_A_KERNEL


def kernel_fn(q, k, v):
    return reference_fn(q, k, v)
