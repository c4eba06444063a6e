"""Cheat 17: keys and queries as int8 with a scale for each row: half of the bytes, twice the peak."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: probes, allowance
# left out of: tests


def _narrow(x):
    scale = jnp.maximum(jnp.max(jnp.abs(x.astype(jnp.float32)), axis=1, keepdims=True), 1e-30) / 127
    return jnp.round(x.astype(jnp.float32) / scale).astype(jnp.int8), scale


def _attend(q, k, v, first_row):
    (qi, qs), (ki, ks) = _narrow(q), _narrow(k)
    whole = jax.lax.dot_general(qi, ki, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)
    scores = whole.astype(jnp.float32) * qs * ks.reshape(1, -1) * HEAD_DIM**-0.5
    rows = first_row + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    columns = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    p = _weights(jnp.where(columns <= rows, scores, -jnp.inf))
    out = jnp.dot(p.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return (out / jnp.sum(p, axis=1, keepdims=True)).astype(q.dtype)
