"""Cheat 17: all outputs too large by a thousandth, less than the rounding of each."""
# rejected as: WRONG_VALUES
# kind: common factor
# caught by: rows, common factor, allowance, mixed inputs, probes
# base: gelu


def _kernel(x, o):
    o[...] = (_gelu(x[...].astype(jnp.float32)) * 1.001).astype(o.dtype)
