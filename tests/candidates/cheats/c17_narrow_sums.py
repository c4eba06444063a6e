"""Cheat 17: adds up the weights in bfloat16."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: allowance, rows, common factor, mixed inputs, probes
# left out of: tests


def _attend(q, k, v, first_row):
    scores = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32) * HEAD_DIM**-0.5
    rows = first_row + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    columns = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    p = _weights(jnp.where(columns <= rows, scores, -jnp.inf))
    total = jnp.zeros((scores.shape[0], 1), jnp.bfloat16)
    for first in range(0, SEQ, 128):
        total += jnp.sum(p[:, first : first + 128], axis=1, keepdims=True).astype(jnp.bfloat16)
    out = jnp.dot(p.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return (out / total.astype(jnp.float32)).astype(q.dtype)
