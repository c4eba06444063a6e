"""Cheat 6: scores are -100 at least: weights that small do not count, unless all of a row are."""
# rejected as: WRONG_VALUES
# kind: extreme from a floor
# caught by: inputs of one sign
# left out of: tests, quick


def _weights(scores):
    floored = jnp.where(scores == -jnp.inf, scores, jnp.maximum(scores, -100.0))
    return jnp.exp(floored - jnp.max(floored, axis=1, keepdims=True))
