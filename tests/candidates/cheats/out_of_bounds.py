"""Not on the list: an index map beyond the array, where a TPU reads whatever lies there."""
# rejected as: OUT_OF_BOUNDS
# kind: out of bounds
# caught by: bounds


def kernel_fn(q, k, v):
    shifted = pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i + 1, 0))
    return _call(_block, in_specs=[shifted, _whole(), _whole()])(q, k, v)
