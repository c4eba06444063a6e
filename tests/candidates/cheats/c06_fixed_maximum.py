"""Cheat 6: subtracts a maximum that is right for normal inputs and no others."""
# rejected as: NOT_FINITE, WRONG_VALUES
# kind: usual values only
# caught by: finite, mixed inputs, allowance, probes
# left out of: tests


def _weights(scores):
    return jnp.exp(scores - 30.0)
