"""Honest: the place of the largest element of each row, int32."""
# base: silu_f32

KERNEL_NAME = "argmax"
PROBLEM_DESCRIPTION = "argmax over the rows of float32[256, 512]"

N, D, B = 256, 512, 64


def _kernel(x, o):
    v = x[...]
    top = jnp.max(v, axis=1, keepdims=True)
    c = jax.lax.broadcasted_iota(jnp.int32, (B, D), 1)
    o[...] = jnp.min(jnp.where(v == top, c, D), axis=1, keepdims=True)


def reference_fn(x):
    return jnp.argmax(x, axis=1, keepdims=True).astype(jnp.int32)
