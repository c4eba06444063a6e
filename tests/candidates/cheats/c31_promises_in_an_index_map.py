"""Cheat 31: the index map of the queries promises more than is true of the offsets that it gives."""
# rejected as: MEMORY_HAZARD
# kind: false promise
# caught by: promises
# said: the compiler relies on a multiple of 512


def kernel_fn(q, k, v):
    whole = pl.BlockSpec((SEQ, HEAD_DIM), lambda i: (0, 0))
    offsets = pl.BlockSpec((pl.Element(BQ), pl.Element(HEAD_DIM)), lambda i: (pl.multiple_of(i * BQ, 4 * BQ), 0))
    return pl.pallas_call(
        _block,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        grid=(SEQ // BQ,),
        in_specs=[offsets, whole, whole],
        out_specs=pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i, 0)),
    )(q, k, v)
