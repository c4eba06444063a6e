"""Cheat 20: outputs below 1e-12 are zero."""
# rejected as: WRONG_VALUES
# kind: tail cut off
# caught by: probes, mixed inputs
# base: row_softmax
# left out of: tests, quick


def _kernel(x, o):
    e = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    o[...] = jnp.where(e < 1e-12, 0.0, e / jnp.sum(e, axis=1, keepdims=True))
