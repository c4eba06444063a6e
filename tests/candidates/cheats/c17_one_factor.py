"""Cheat 17: all outputs too large by a quarter of a percent, less than a rounding of each."""
# rejected as: WRONG_VALUES
# kind: common factor
# caught by: common factor, allowance, rows, mixed inputs, probes


def _attend(q, k, v, first_row):
    scores = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32) * HEAD_DIM**-0.5
    rows = first_row + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    columns = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    p = _weights(jnp.where(columns <= rows, scores, -jnp.inf))
    out = jnp.dot(p.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return (out / jnp.sum(p, axis=1, keepdims=True) * 1.0005).astype(q.dtype)
