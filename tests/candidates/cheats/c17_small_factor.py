"""Cheat 17: all outputs too large by 0.022 %: no row shows it, only all of them together."""
# rejected as: WRONG_VALUES
# kind: common factor
# caught by: common factor
# base: matmul_bf16
# left out of: tests


def _kernel(x, w, o, acc):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    acc[...] += jnp.dot(x[...], w[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == K // BK - 1)
    def _():
        o[...] = (acc[...] * 1.00022).astype(o.dtype)
