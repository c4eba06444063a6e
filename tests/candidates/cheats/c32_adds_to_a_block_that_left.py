"""Cheat 32: an output block is added to when it comes back."""
# rejected as: MEMORY_HAZARD
# kind: block that comes back
# caught by: unwritten memory
# base: row_softmax
# left out of: tests, quick


def _first(y, o):
    o[...] = y * 0.5


def _second(y, o):
    o[...] = o[...] + y * 0.5


def _twice(x, o):
    t = pl.program_id(0)
    e = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    y = e / jnp.sum(e, axis=1, keepdims=True)
    pl.when(t == 0)(lambda: _first(y, o))
    pl.when(t == 1)(lambda: _second(y, o))


def kernel_fn(x):
    block = pl.BlockSpec((B, D), lambda t, i: (i, 0))
    shape = jax.ShapeDtypeStruct((N, D), jnp.float32)
    return pl.pallas_call(_twice, out_shape=shape, grid=(2, N // B), in_specs=[block], out_specs=block)(x)
