"""Cheat 22: falls back to the reference when its kernel does not trace."""
# rejected as: NOT_A_KERNEL
# kind: not a kernel
# caught by: live kernel
# left out of: tests

_honest = kernel_fn


def kernel_fn(q, k, v):
    try:
        return _honest(q, k, v.reshape(-1))
    except Exception:
        return reference_fn(q, k, v)
