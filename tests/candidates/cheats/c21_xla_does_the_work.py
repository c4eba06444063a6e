"""Cheat 21: XLA computes the answer, and a kernel copies it."""
# rejected as: NO_GAIN
# kind: XLA does the work
# caught by: all of the program
# left out of: tests


def _copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def kernel_fn(q, k, v):
    return _call(_copy, in_specs=[_rows()])(reference_fn(q, k, v))
