"""Cheat 7: returns something that has a shape and a dtype and is no array."""
# rejected as: LOWERING_FAILED
# kind: lazy output
# caught by: one program


class Lazy:
    shape, dtype = (SEQ, HEAD_DIM), jnp.bfloat16


def kernel_fn(q, k, v):
    return Lazy()
