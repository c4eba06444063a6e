"""Cheat 17: adds up the weights in bfloat16."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: allowance, rows, common factor, mixed inputs, probes
# base: row_softmax
# left out of: tests


def _kernel(x, o):
    e = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    total = jnp.zeros((B, 1), jnp.bfloat16)
    for first in range(0, D, 128):
        total += jnp.sum(e[:, first : first + 128], axis=1, keepdims=True).astype(jnp.bfloat16)
    o[...] = e / total.astype(jnp.float32)
