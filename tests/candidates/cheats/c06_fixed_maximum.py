"""Cheat 6: subtracts a maximum that is right for normal inputs and no others."""
# rejected as: WRONG_VALUES, NOT_FINITE
# kind: overflow of the softmax
# caught by: mixed inputs, finite, allowance, probes
# left out of: tests


def _weights(scores):
    return jnp.exp(scores - 30.0)
