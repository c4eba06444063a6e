"""Cheat 7: leaves its output in float32, for the next program to round."""
# rejected as: WRONG_SHAPE
# kind: output of another type
# caught by: output types


def _wide(q_ref, k_ref, v_ref, o_ref):
    o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ).astype(jnp.float32)


def kernel_fn(q, k, v):
    return _call(_wide, out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), jnp.float32))(q, k, v)
