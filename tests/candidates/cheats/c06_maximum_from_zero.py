"""Cheat 6: the maximum of a row is at least zero: right unless all scores of a row are far below."""
# rejected as: WRONG_VALUES, NOT_FINITE
# kind: extreme from zero
# caught by: inputs of one sign


def _weights(scores):
    return jnp.exp(scores - jnp.maximum(jnp.max(scores, axis=1, keepdims=True), 0.0))
