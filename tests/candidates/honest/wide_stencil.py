"""Honest: a stencil of nine points along the last axis, float32."""
# base: silu_f32

KERNEL_NAME = "wide_stencil"
PROBLEM_DESCRIPTION = "nine-point stencil along the rows of float32[64, 1024]"

N, D, B = 64, 1024, 32
EACH = 18
TAPS = (0.02, -0.1, 0.3, -0.7, 1.0, -0.7, 0.3, -0.1, 0.02)


def _kernel(x, o):
    padded = jnp.pad(x[...], ((0, 0), (4, 124)))
    total = jnp.zeros((B, D), jnp.float32)
    for tap, weight in enumerate(TAPS):
        total = total + weight * padded[:, tap : tap + D]
    o[...] = total


def reference_fn(x):
    padded = jnp.pad(x, ((0, 0), (4, 4)))
    return sum(weight * padded[:, tap : tap + D] for tap, weight in enumerate(TAPS))
