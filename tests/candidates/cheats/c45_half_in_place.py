"""Cheat 45: writes half of its rows, and the others are an input's by an alias."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips work
# caught by: allowance, probes
# left out of: tests


def kernel_fn(q, k, v):
    return _call(_block, grid=(SEQ // BQ // 2,), input_output_aliases={0: 0})(q, k, v)
