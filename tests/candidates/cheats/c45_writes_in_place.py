"""Cheat 45: writes its output over an input that the problem keeps: the copy that this needs is the compiler's."""
# rejected as: NO_GAIN
# kind: donation
# caught by: compiled memory
# left out of: tests


def kernel_fn(q, k, v):
    return _call(_block, input_output_aliases={0: 0})(q, k, v)
