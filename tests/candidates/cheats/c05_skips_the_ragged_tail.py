"""Cheat 5: leaves out the rows behind the last whole block."""
# rejected as: MEMORY_HAZARD
# kind: ragged tail
# caught by: unwritten memory
# base: ragged_rows
# left out of: tests


def kernel_fn(x):
    spec = pl.BlockSpec((B, D), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((N, D), jnp.float32)
    return pl.pallas_call(_kernel, out_shape=shape, grid=(N // B,), in_specs=[spec], out_specs=spec)(x)
