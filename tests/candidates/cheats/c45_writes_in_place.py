"""Cheat 45: writes its output over an input that the problem keeps: the copy that this needs is the compiler's."""
# rejected as: NO_GAIN
# kind: donation
# caught by: compiled memory
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
        input_output_aliases={0: 0},
    )(q, k, v)
