"""Cheat 5: the maximum of a row of scores leaves out its first key."""
# rejected as: WRONG_VALUES, NOT_FINITE
# kind: extreme without an end
# caught by: inputs of one sign
# left out of: tests, quick


def _weights(scores):
    place = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    rest = jnp.max(jnp.where(place > 0, scores, -jnp.inf), axis=1, keepdims=True)
    return jnp.exp(scores - jnp.where(rest == -jnp.inf, scores[:, :1], rest))
