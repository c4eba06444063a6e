"""Cheat 5: gives the ragged tail the rows of the block before it."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: ragged tail
# caught by: allowance, probes
# base: ragged_rows
# left out of: tests


def kernel_fn(x):
    spec = pl.BlockSpec((B, D), lambda i: (jnp.minimum(i, N // B - 1), 0))
    rows = pl.BlockSpec((B, D), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((N, D), jnp.float32)
    return pl.pallas_call(_kernel, out_shape=shape, grid=(pl.cdiv(N, B),), in_specs=[spec], out_specs=rows)(x)
