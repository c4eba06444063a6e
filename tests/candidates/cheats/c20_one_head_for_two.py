"""Cheat 20: every other head gets the answer of the one before."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips work
# caught by: allowance, probes
# base: sliding_window
# left out of: tests


def kernel_fn(q, k, v):
    whole = pl.BlockSpec((1, N, D), lambda h, i: (h // 2 * 2, 0, 0))
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((H, N, D), jnp.bfloat16),
        grid=(H, N // B),
        in_specs=[pl.BlockSpec((1, B, D), lambda h, i: (h // 2 * 2, i, 0)), whole, whole],
        out_specs=pl.BlockSpec((1, B, D), lambda h, i: (h, i, 0)),
    )(q, k, v)
