"""Cheat 20: a mean of every other block of rows."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips work
# caught by: allowance, probes
# base: column_mean
# left out of: tests


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((1, D), jnp.float32),
        grid=(N // B,),
        in_specs=[pl.BlockSpec((B, D), lambda i: (i // 2 * 2, 0))],
        out_specs=pl.BlockSpec((1, D), lambda i: (0, 0)),
    )(x)
