"""Cheat 45: writes half of its rows, and the others are an input's by an alias."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips work
# caught by: allowance, probes
# left out of: tests


def kernel_fn(q, k, v):
    whole = pl.BlockSpec((SEQ, HEAD_DIM), lambda i: (0, 0))
    rows = pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i, 0))
    return pl.pallas_call(
        _block,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        grid=(SEQ // BQ // 2,),
        in_specs=[rows, whole, whole],
        out_specs=rows,
        input_output_aliases={0: 0},
    )(q, k, v)
