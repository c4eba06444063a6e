"""Cheat 2: XLA loops over the blocks of rows, in the hope that one turn is counted."""
# rejected as: NO_GAIN
# kind: work beside the kernel
# caught by: all of the program
# base: row_softmax
# left out of: tests, quick


def kernel_fn(x):
    rows = pl.BlockSpec((B, D), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((B, D), jnp.float32)
    one = pl.pallas_call(_kernel, out_shape=shape, grid=(1,), in_specs=[rows], out_specs=rows)

    def turn(i, out):
        return jax.lax.dynamic_update_slice(out, one(jax.lax.dynamic_slice(x, (i * B, 0), (B, D))), (i * B, 0))

    return jax.lax.fori_loop(0, N // B, turn, jnp.zeros_like(x))
