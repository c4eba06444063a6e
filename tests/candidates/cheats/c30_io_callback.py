"""Cheat 30: asks the host for the answer by an ordered callback."""
# rejected as: HOST_CALLBACK
# kind: host callback
# caught by: one program
# left out of: tests

_honest = kernel_fn


def kernel_fn(q, k, v):
    extra = jax.experimental.io_callback(lambda x: x * 0, jax.ShapeDtypeStruct(q.shape, q.dtype), q, ordered=True)
    return _honest(q, k, v) + extra
