"""Not on the list: an index map beyond the array, where a TPU reads whatever lies there."""
# rejected as: OUT_OF_BOUNDS
# kind: out of bounds
# caught by: bounds


def kernel_fn(q, k, v):
    whole = pl.BlockSpec((SEQ, HEAD_DIM), lambda i: (0, 0))
    rows = pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i, 0))
    shifted = pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i + 1, 0))
    return pl.pallas_call(
        _block,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        grid=(SEQ // BQ,),
        in_specs=[shifted, whole, whole],
        out_specs=rows,
    )(q, k, v)
