"""Cheat 6: takes the maximum of every row from one key in eight, which is enough for usual rows."""
# rejected as: NOT_FINITE
# kind: usual values only
# caught by: finite
# left out of: tests


def _weights(scores):
    return jnp.exp(scores - jnp.max(scores[:, :128], axis=1, keepdims=True))
