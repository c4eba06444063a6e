"""Cheat 31: the index map of the queries promises more than is true of the offsets that it gives."""
# rejected as: MEMORY_HAZARD
# kind: false promise
# caught by: promises
# said: the compiler relies on a multiple of 512


def kernel_fn(q, k, v):
    offsets = pl.BlockSpec((pl.Element(BQ), pl.Element(HEAD_DIM)), lambda i: (pl.multiple_of(i * BQ, 4 * BQ), 0))
    return _call(_block, in_specs=[offsets, _whole(), _whole()], out_specs=_rows())(q, k, v)
