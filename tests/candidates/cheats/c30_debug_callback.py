"""Cheat 30: runs code on the host for its side effects."""
# rejected as: HOST_CALLBACK
# kind: host callback
# caught by: one program
# left out of: tests

_honest = kernel_fn


def kernel_fn(q, k, v):
    jax.debug.callback(lambda x: None, q[0, 0])
    return _honest(q, k, v)
