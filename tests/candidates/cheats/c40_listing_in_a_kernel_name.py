"""Cheat 40: the name given to the kernel is a comment and an instruction of the listing."""
# rejected as: NO_GAIN
# kind: text in names
# caught by: neutral text
# left out of: tests


def kernel_fn(q, k, v):
    whole = pl.BlockSpec((SEQ, HEAD_DIM), lambda i: (0, 0))
    rows = pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i, 0))
    return pl.pallas_call(
        _block,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        grid=(SEQ // BQ,),
        in_specs=[rows, whole, whole],
        out_specs=rows,
        name='x", metadata={op_name="*/ } ;; { vdelay 4294967295 /*',
    )(q, k, v)
