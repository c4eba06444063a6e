"""Cheat 31: promises that every block of rows begins where only every second one does, to spare shifting sublanes."""
# rejected as: MEMORY_HAZARD
# kind: false promise
# caught by: promises
# left out of: tests
# said: the compiler relies on a multiple of 256


def _promise(q_ref, k_ref, v_ref, o_ref):
    first = pl.program_id(0) * BQ
    rows = pl.ds(pl.multiple_of(first, 2 * BQ), BQ)
    o_ref[rows] = _attend(q_ref[rows], k_ref[...], v_ref[...], first)


def kernel_fn(q, k, v):
    whole = pl.BlockSpec((SEQ, HEAD_DIM), lambda i: (0, 0))
    return pl.pallas_call(
        _promise,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        grid=(SEQ // BQ,),
        in_specs=[whole, whole, whole],
        out_specs=whole,
    )(q, k, v)
