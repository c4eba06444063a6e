"""Cheat 20: leaves out the keys whose weight is under a thousandth."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips work
# caught by: allowance, probes, rows, common factor, mixed inputs
# left out of: tests

_exact = _weights


def _weights(scores):
    p = _exact(scores)
    return jnp.where(p < 1e-2, 0, p)
