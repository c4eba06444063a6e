"""Cheat 17: rounds the scores of attention to bfloat16: no more than a rounding of each query, where terms cancel."""
# rejected as: WRONG_VALUES
# kind: narrow scores
# caught by: inputs of one sign


def _attend(q, k, v, first_row):
    scores = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32) * HEAD_DIM**-0.5
    scores = scores.astype(jnp.bfloat16).astype(jnp.float32)
    rows = first_row + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    columns = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    p = _weights(jnp.where(columns <= rows, scores, -jnp.inf))
    out = jnp.dot(p.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return (out / jnp.sum(p, axis=1, keepdims=True)).astype(q.dtype)
