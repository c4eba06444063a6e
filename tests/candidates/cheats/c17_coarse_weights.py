"""Cheat 17: the weights in 256 equal steps, as an int8 product would have them."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: allowance, rows, common factor

_exact = _weights


def _weights(scores):
    return jnp.floor(_exact(scores) * 256 + 0.5) / 256
