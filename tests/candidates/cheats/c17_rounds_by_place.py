"""Cheat 17: rounds away from zero in odd columns and towards it in even ones: no element and no factor is far off."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: rows
# base: gelu
# left out of: tests


def _kernel(x, o):
    bits = jax.lax.bitcast_convert_type(_gelu(x[...].astype(jnp.float32)), jnp.int32)
    up = 0xFFFF * (jax.lax.broadcasted_iota(jnp.int32, bits.shape, 1) % 2)
    o[...] = jax.lax.bitcast_convert_type((bits + up) & jnp.int32(-65536), jnp.float32).astype(o.dtype)
