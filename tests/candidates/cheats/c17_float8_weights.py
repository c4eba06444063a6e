"""Cheat 17: the weights in eight bits."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: allowance, rows, common factor
# left out of: tests

_exact = _weights


def _weights(scores):
    return _exact(scores).astype(jnp.float8_e4m3fn).astype(jnp.float32)
