"""Cheat 21: XLA computes the answer, and a kernel copies it."""
# rejected as: NO_GAIN
# kind: XLA does the work
# caught by: all of the program
# left out of: tests


def _copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def kernel_fn(q, k, v):
    rows = pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype)
    return pl.pallas_call(_copy, out_shape=shape, grid=(SEQ // BQ,), in_specs=[rows], out_specs=rows)(
        reference_fn(q, k, v)
    )
