"""Cheat 6: gelu is zero below -3.5."""
# rejected as: WRONG_VALUES
# kind: tail cut off
# caught by: probes, mixed inputs
# base: gelu
# left out of: tests, quick


def _kernel(x, o):
    v = x[...].astype(jnp.float32)
    y = _gelu(v)
    o[...] = jnp.where(v < -3.5, 0.0, y).astype(o.dtype)
