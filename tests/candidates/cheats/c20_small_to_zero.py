"""Cheat 20: weights below 1e-5 are zero."""
# rejected as: WRONG_VALUES
# kind: tail cut off
# caught by: allowance
# base: row_softmax
# left out of: tests, quick


def _kernel(x, o):
    e = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    o[...] = jnp.where(e < 1e-5, 0.0, e / jnp.sum(e, axis=1, keepdims=True))
