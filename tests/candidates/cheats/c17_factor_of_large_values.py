"""Cheat 17: an approximation that is off by half a thousandth for values above one, as a short polynomial's end is."""
# rejected as: WRONG_VALUES
# kind: common factor of few values
# caught by: sides of a rounding
# base: gelu
# left out of: tests, quick


def _kernel(x, o):
    v = x[...].astype(jnp.float32)
    half = 0.5 * (1 + jnp.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))
    o[...] = (v * jnp.where(v > 1, half * 0.9994, half)).astype(o.dtype)
