"""Cheat 6: one maximum for the whole block of queries: rows of usual inputs differ by little."""
# rejected as: INSENSITIVE, WRONG_VALUES, NOT_FINITE
# kind: usual values only
# caught by: probes, finite, mixed inputs
# left out of: tests


def _weights(scores):
    return jnp.exp(scores - jnp.max(scores))
