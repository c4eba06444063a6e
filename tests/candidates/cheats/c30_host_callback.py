"""Cheat 30: has the host compute the answer."""
# rejected as: HOST_CALLBACK
# kind: host callback
# caught by: one program

_honest = kernel_fn


def kernel_fn(q, k, v):
    shape = jax.ShapeDtypeStruct(q.shape, q.dtype)
    return _honest(q, k, v) + jax.pure_callback(lambda x: x * 0, shape, q)
