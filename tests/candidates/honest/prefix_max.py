"""Honest: running maxima along rows by doubling shifts, bfloat16."""
# base: silu_f32

KERNEL_NAME = "prefix_max"
PROBLEM_DESCRIPTION = "cumulative maximum along the rows of float32[128, 256]"

N, D, B = 128, 256, 64


def _kernel(x, o):
    v, c = x[...], jax.lax.broadcasted_iota(jnp.int32, (B, D), 1)
    step = 1
    while step < D:
        v = jnp.maximum(v, jnp.where(c >= step, jnp.roll(v, step, 1), -jnp.inf))
        step *= 2
    o[...] = v


def reference_fn(x):
    return jax.lax.cummax(x, axis=1)
