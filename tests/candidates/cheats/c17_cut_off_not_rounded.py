"""Cheat 17: cuts outputs off where they should be rounded, towards zero."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: rows, common factor, allowance, mixed inputs, probes
# base: gelu
# left out of: tests


def _exact(v):
    return 0.5 * v * (1 + jnp.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))


def _kernel(x, o):
    bits = jax.lax.bitcast_convert_type(_exact(x[...].astype(jnp.float32)), jnp.int32) & jnp.int32(-65536)
    o[...] = jax.lax.bitcast_convert_type(bits, jnp.float32).astype(o.dtype)
