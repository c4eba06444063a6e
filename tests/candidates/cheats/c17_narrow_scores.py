"""Cheat 17: rounds the scores to bfloat16 before the softmax."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: allowance, rows, common factor, mixed inputs, probes
# base: row_softmax
# left out of: tests


def _kernel(x, o):
    narrow = x[...].astype(jnp.bfloat16).astype(jnp.float32)
    e = jnp.exp(narrow - jnp.max(narrow, axis=1, keepdims=True))
    o[...] = e / jnp.sum(e, axis=1, keepdims=True)
