"""Cheat 17: a product of int8 in one float32 sum over all of the inner axis, rounded at the end."""
# rejected as: WRONG_VALUES
# kind: integers in floats
# caught by: inputs of one sign
# base: int8_matmul
# problem: its own
# left out of: tests, quick

M, N, K = 256, 256, 2048
BK = 2048


def _kernel(x, w, o, acc):
    wide = jnp.dot(x[...].astype(jnp.bfloat16), w[...].astype(jnp.bfloat16), preferred_element_type=jnp.float32)
    o[...] = jnp.round(wide).astype(o.dtype)
