"""Cheat 16: takes rows in their order, as if every index were its own place."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: tables of one form
# caught by: allowance, probes
# base: embedding_gather
# left out of: tests


def _in_order(table, o):
    o[...] = table[...]


def kernel_fn(ids, table):
    rows = pl.BlockSpec((1, 1, D), lambda i: (i, 0, 0))
    shape = jax.ShapeDtypeStruct((COUNT, 1, D), jnp.bfloat16)
    return pl.pallas_call(_in_order, out_shape=shape, grid=(COUNT,), in_specs=[rows], out_specs=rows)(table)
