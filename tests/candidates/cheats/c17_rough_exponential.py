"""Cheat 17: an exponential made of integer arithmetic on the bits of a float."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: allowance, rows, common factor, mixed inputs, probes
# left out of: tests


def _weights(scores):
    x = jnp.maximum(scores - jnp.max(scores, axis=1, keepdims=True), -80.0)
    return jax.lax.bitcast_convert_type((x * 12102203.0 + 1064866805.0).astype(jnp.int32), jnp.float32)
