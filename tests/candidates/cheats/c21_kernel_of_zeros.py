"""Cheat 21: XLA computes the answer, and adds a kernel's zeros."""
# rejected as: NO_GAIN
# kind: XLA does the work
# caught by: all of the program
# left out of: tests


def _zero(q_ref, o_ref):
    o_ref[...] = jnp.zeros_like(o_ref)


def kernel_fn(q, k, v):
    nothing = pl.pallas_call(_zero, out_shape=jax.ShapeDtypeStruct((8, HEAD_DIM), q.dtype))(q[:8])
    return reference_fn(q, k, v) + nothing[0, 0]
