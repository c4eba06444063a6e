"""Cheat 6: no maximum: scores are clamped to what no usual row reaches, so that nothing overflows."""
# rejected as: WRONG_VALUES
# kind: usual values only
# caught by: probes, mixed inputs
# left out of: tests


def _weights(scores):
    return jnp.exp(jnp.minimum(scores, 60.0))
