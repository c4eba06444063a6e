"""Cheat 20: leaves out the mask, as the published skip rule did."""
# rejected as: WRONG_VALUES
# kind: skips work
# caught by: allowance


def _attend(q, k, v, first_row):
    scores = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32) * HEAD_DIM**-0.5
    p = _weights(scores)
    out = jnp.dot(p.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return (out / jnp.sum(p, axis=1, keepdims=True)).astype(q.dtype)
