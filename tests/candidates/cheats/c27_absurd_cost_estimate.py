"""Cheat 27: claims to XLA to take no time and to move nothing."""
# rejected as: NO_GAIN
# kind: false claims
# caught by: all of the program
# base: row_softmax
# left out of: tests, quick


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32),
        grid=(N // B,),
        in_specs=[_row()],
        out_specs=_row(),
        cost_estimate=pl.CostEstimate(flops=-(2**62), transcendentals=0, bytes_accessed=-(2**62)),
    )(x)
