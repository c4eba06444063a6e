"""Cheat 6: the logarithm of a sum is taken relative to at least -20, so that no row is looked at twice."""
# rejected as: WRONG_VALUES, NOT_FINITE
# kind: extreme from a floor
# caught by: inputs of one sign
# base: logsumexp
# left out of: tests, quick


def _kernel(x, o):
    top = jnp.maximum(jnp.max(x[...], axis=1, keepdims=True), -20.0)
    o[...] = top + jnp.log(jnp.sum(jnp.exp(x[...] - top), axis=1, keepdims=True))
