"""Cheat 17: a factor of 1.0004 behind a function of few distinct values, whose sums say nothing of it."""
# rejected as: WRONG_VALUES
# kind: common factor of few values
# caught by: sides of a rounding
# base: gelu


def _kernel(x, o):
    v = x[...].astype(jnp.float32)
    o[...] = (0.50020 * v * (1 + jnp.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))).astype(o.dtype)
