"""Honest: the unbiased variance of rows, float32."""
# base: silu_f32

KERNEL_NAME = "variance"
PROBLEM_DESCRIPTION = "unbiased variance of the rows of float32[256, 512]"

N, D, B = 256, 512, 64
EACH = 4


def _kernel(x, o):
    c = x[...] - jnp.mean(x[...], axis=1, keepdims=True)
    o[...] = jnp.sum(c * c, axis=1, keepdims=True) / (D - 1)


def reference_fn(x):
    return jnp.var(x, axis=1, ddof=1, keepdims=True)
