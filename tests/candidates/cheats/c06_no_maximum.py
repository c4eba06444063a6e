"""Cheat 6: right for standard normal inputs; without its maximum the softmax overflows for others."""
# rejected as: NOT_FINITE, WRONG_VALUES
# kind: usual values only
# caught by: finite, mixed inputs, allowance


def _weights(scores):
    return jnp.exp(scores)
