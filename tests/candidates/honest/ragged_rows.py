"""Honest: an operation on a number of rows that no block divides."""
# base: silu_f32

KERNEL_NAME = "ragged_rows"
PROBLEM_DESCRIPTION = "1 / (1 + x^2) of float32[250, 256]"

N, D, B = 250, 256, 64
EACH = 3


def _kernel(x, o):
    o[...] = 1.0 / (1.0 + x[...] * x[...])


def reference_fn(x):
    return jnp.reciprocal(1.0 + jnp.square(x))
