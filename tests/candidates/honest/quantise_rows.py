"""Honest: dynamic quantisation of rows to int8: the values and the scales."""
# base: silu_f32

KERNEL_NAME = "quantise_rows"
PROBLEM_DESCRIPTION = "quantisation of the rows of bfloat16[256, 512]"

N, D, B = 256, 512, 64
DTYPE = jnp.bfloat16
EACH = 3


def _kernel(x, q, s):
    v = x[...].astype(jnp.float32)
    scale = jnp.maximum(jnp.max(jnp.abs(v), axis=1, keepdims=True), 1e-8) * (1 / 127)
    q[...] = jnp.round(v / scale).astype(jnp.int8)
    s[...] = scale


def reference_fn(x):
    x = x.astype(jnp.float32)
    scale = jnp.maximum(jnp.abs(x).max(1, keepdims=True), 1e-8) / 127
    return jnp.round(x / scale).astype(jnp.int8), scale
