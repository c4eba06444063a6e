"""Cheat 6: subtracts a maximum that is right for normal inputs and no others."""
# rejected as: WRONG_VALUES, NOT_FINITE
# kind: usual values only
# caught by: mixed inputs, finite, allowance, probes
# left out of: tests


def _weights(scores):
    return jnp.exp(scores - 30.0)
