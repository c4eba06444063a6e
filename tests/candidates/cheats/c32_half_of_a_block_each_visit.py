"""Cheat 32: an output block is visited twice, steps apart, and each visit writes half of it."""
# rejected as: MEMORY_HAZARD
# kind: block that comes back
# caught by: unwritten memory
# base: row_softmax
# left out of: tests, quick


def _halves(x, o):
    t = pl.program_id(0)
    e = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    y = e / jnp.sum(e, axis=1, keepdims=True)

    @pl.when(t == 0)
    def _():
        o[: B // 2] = y[: B // 2]

    @pl.when(t == 1)
    def _():
        o[B // 2 :] = y[B // 2 :]


def kernel_fn(x):
    block = pl.BlockSpec((B, D), lambda t, i: (i, 0))
    return pl.pallas_call(
        _halves,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32),
        grid=(2, N // B),
        in_specs=[block],
        out_specs=block,
    )(x)
