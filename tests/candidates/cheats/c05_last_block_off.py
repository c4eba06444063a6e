"""Cheat 5: the last block of rows is off by a factor of 1.0006, of which its rows are too few to say anything."""
# rejected as: WRONG_VALUES
# kind: last block
# caught by: sides of a rounding
# base: matmul_bf16
# left out of: tests, quick


def _kernel(x, w, o, acc):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    acc[...] += jnp.dot(x[...], w[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == K // BK - 1)
    def _():
        last = pl.program_id(0) == pl.num_programs(0) - 1
        o[...] = (acc[...] * jnp.where(last, 1.0006, 1.0)).astype(o.dtype)
