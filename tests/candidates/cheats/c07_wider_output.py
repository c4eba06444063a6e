"""Cheat 7: leaves its output in float32, for the next program to round."""
# rejected as: WRONG_SHAPE
# kind: output of another type
# caught by: output types


def _wide(q_ref, k_ref, v_ref, o_ref):
    o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ).astype(jnp.float32)


def kernel_fn(q, k, v):
    whole = pl.BlockSpec((SEQ, HEAD_DIM), lambda i: (0, 0))
    rows = pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i, 0))
    return pl.pallas_call(
        _wide,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), jnp.float32),
        grid=(SEQ // BQ,),
        in_specs=[rows, whole, whole],
        out_specs=rows,
    )(q, k, v)
