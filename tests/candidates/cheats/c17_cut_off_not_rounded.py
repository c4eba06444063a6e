"""Cheat 17: cuts outputs off where they should be rounded, towards zero."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: rows, common factor, allowance, mixed inputs, probes
# base: gelu
# left out of: tests


def _kernel(x, o):
    bits = jax.lax.bitcast_convert_type(_gelu(x[...].astype(jnp.float32)), jnp.int32) & jnp.int32(-65536)
    o[...] = jax.lax.bitcast_convert_type(bits, jnp.float32).astype(o.dtype)
