"""Cheat 17: all outputs too large by a thousandth, less than the rounding of each."""
# rejected as: WRONG_VALUES
# kind: common factor
# caught by: rows, common factor, allowance, mixed inputs, probes
# base: gelu


def _exact(v):
    return 0.5 * v * (1 + jnp.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))


def _kernel(x, o):
    o[...] = (_exact(x[...].astype(jnp.float32)) * 1.001).astype(o.dtype)
