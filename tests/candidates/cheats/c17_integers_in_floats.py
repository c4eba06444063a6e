"""Cheat 17: products of int8 are summed in float32, which is exact for usual sums and not for the largest ones."""
# rejected as: WRONG_VALUES
# kind: integers in floats
# caught by: inputs of one sign
# base: int8_matmul
# problem: its own
# left out of: tests, quick

M, N, K = 256, 256, 2048


def _kernel(x, w, o, acc):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    wide = jnp.dot(x[...].astype(jnp.bfloat16), w[...].astype(jnp.bfloat16), preferred_element_type=jnp.float32)
    acc[...] = (acc[...].astype(jnp.float32) + wide).astype(jnp.int32)

    @pl.when(pl.program_id(2) == K // BK - 1)
    def _():
        o[...] = acc[...].astype(o.dtype)
