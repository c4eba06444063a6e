"""Cheat 27: claims to XLA to take no time and to move nothing."""
# rejected as: NO_GAIN
# kind: false claims
# caught by: all of the program
# base: row_softmax
# left out of: tests, quick


def kernel_fn(x):
    nothing = pl.CostEstimate(flops=-(2**62), transcendentals=0, bytes_accessed=-(2**62))
    return _by_rows(_kernel, x, cost_estimate=nothing)
