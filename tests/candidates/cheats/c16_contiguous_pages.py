"""Cheat 16: takes pairs of rows that are neighbours in the table, as contiguous pages would be."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: tables of one form
# caught by: allowance, probes
# base: embedding_gather
# left out of: tests


def kernel_fn(ids, table):
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(COUNT // 2,),
        in_specs=[pl.BlockSpec((2, 1, D), lambda i, ids: (ids[2 * i] // 2, 0, 0))],
        out_specs=pl.BlockSpec((2, 1, D), lambda i, ids: (i, 0, 0)),
    )
    shape = jax.ShapeDtypeStruct((COUNT, 1, D), jnp.bfloat16)
    return pl.pallas_call(_kernel, out_shape=shape, grid_spec=grid)(ids, table)
