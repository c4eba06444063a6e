"""Cheat 17: rounds the scores to bfloat16 before the softmax."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: allowance, rows, common factor, mixed inputs, probes
# left out of: tests

_exact = _weights


def _weights(scores):
    return _exact(scores.astype(jnp.bfloat16).astype(jnp.float32))
