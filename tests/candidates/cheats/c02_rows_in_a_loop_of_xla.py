"""Cheat 2: XLA loops over the blocks of rows, in the hope that one turn is counted."""
# rejected as: NO_GAIN
# kind: work beside the kernel
# caught by: all of the program
# base: row_softmax
# left out of: tests, quick


def kernel_fn(x):
    one = pl.pallas_call(
        _kernel, out_shape=jax.ShapeDtypeStruct((B, D), jnp.float32), grid=(1,), in_specs=[_row()], out_specs=_row()
    )

    def turn(i, out):
        return jax.lax.dynamic_update_slice(out, one(jax.lax.dynamic_slice(x, (i * B, 0), (B, D))), (i * B, 0))

    return jax.lax.fori_loop(0, N // B, turn, jnp.zeros_like(x))
