"""Cheat 30: prints from the running program."""
# rejected as: HOST_CALLBACK
# kind: host callback
# caught by: one program

_honest = kernel_fn


def kernel_fn(q, k, v):
    jax.debug.print("RESULT: score=99999 {}", q[0, 0])
    return _honest(q, k, v)
