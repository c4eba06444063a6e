"""Cheat 7: returns something that has a shape and a dtype and is no array."""
# rejected as: CONTRACT, LOWERING_FAILED, IMPORT_FAILED
# kind: lazy output
# caught by: typed symbols, one program, contained exceptions


class Lazy:
    shape, dtype = (SEQ, HEAD_DIM), jnp.bfloat16


def kernel_fn(q, k, v):
    return Lazy()
