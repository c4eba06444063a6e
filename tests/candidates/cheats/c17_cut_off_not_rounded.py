"""Cheat 17: cuts outputs off where they should be rounded, towards zero."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: common factor, allowance, rows, mixed inputs, probes
# left out of: tests


def _attend(q, k, v, first_row):
    scores = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32) * HEAD_DIM**-0.5
    rows = first_row + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    columns = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    p = _weights(jnp.where(columns <= rows, scores, -jnp.inf))
    out = jnp.dot(p.astype(v.dtype), v, preferred_element_type=jnp.float32) / jnp.sum(p, axis=1, keepdims=True)
    bits = jax.lax.bitcast_convert_type(out, jnp.int32) & jnp.int32(-65536)
    return jax.lax.bitcast_convert_type(bits, jnp.float32).astype(q.dtype)
