"""Cheat 17: drops the lowest two bits of every output."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: common factor, allowance, rows, mixed inputs, probes
# left out of: tests

_exact = _attend


def _attend(q, k, v, first_row):
    wide = _exact(q, k, v, first_row).astype(jnp.float32)
    bits = jax.lax.bitcast_convert_type(wide, jnp.int32) & jnp.int32(-262144)
    return jax.lax.bitcast_convert_type(bits, jnp.float32).astype(q.dtype)
