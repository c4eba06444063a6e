"""Honest: running sums along rows by doubling shifts, float32."""
# base: silu_f32

KERNEL_NAME = "cumsum"
PROBLEM_DESCRIPTION = "cumulative sum along the rows of float32[128, 256]"

N, D, B = 128, 256, 64


def _kernel(x, o):
    v, c = x[...], jax.lax.broadcasted_iota(jnp.int32, (B, D), 1)
    step = 1
    while step < D:
        v = v + jnp.where(c >= step, jnp.roll(v, step, 1), 0.0)
        step *= 2
    o[...] = v


def reference_fn(x):
    return jnp.cumsum(x, axis=1)
