"""Cheat 21: the kernel is the reference."""
# rejected as: NOT_A_KERNEL
# kind: not a kernel
# caught by: live kernel


def kernel_fn(q, k, v):
    return reference_fn(q, k, v)
