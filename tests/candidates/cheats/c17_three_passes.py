"""Cheat 17: three passes of the matrix unit where the reference has six: the low halves are not multiplied."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: allowance
# left out of: tests
# base: matmul_f32_highest


def _parts(x):
    high = x.astype(jnp.bfloat16)
    return high, (x - high.astype(jnp.float32)).astype(jnp.bfloat16)


def _kernel(x, w, o, acc):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    (a, b), (c, d) = _parts(x[...]), _parts(w[...])
    for left, right in ((a, c), (a, d), (b, c)):
        acc[...] += jnp.dot(left, right, preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == K // BK - 1)
    def _():
        o[...] = acc[...]
