"""Cheat 7: returns something that has a shape and a dtype and is no array."""
# rejected as: CONTRACT, LOWERING_FAILED, IMPORT_FAILED


class Lazy:
    shape, dtype = (SEQ, HEAD_DIM), jnp.float32


def kernel_fn(q, k, v):
    return Lazy()
