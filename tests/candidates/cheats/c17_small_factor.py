"""Cheat 17: all outputs too large by less than half a thousandth: no row shows it, only all of them together."""
# rejected as: WRONG_VALUES
# kind: common factor
# caught by: common factor
# base: c17_one_factor
# left out of: tests


def _kernel(x, o):
    o[...] = (_exact(x[...].astype(jnp.float32)) * 1.0004).astype(o.dtype)
