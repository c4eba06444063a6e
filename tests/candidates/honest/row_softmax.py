"""Honest: softmax over rows, float32."""
# base: silu_f32

KERNEL_NAME = "row_softmax"
PROBLEM_DESCRIPTION = "softmax over the rows of float32[256, 1024]"

N, D, B = 256, 1024, 64
EACH = 4


def _kernel(x, o):
    e = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    o[...] = e / jnp.sum(e, axis=1, keepdims=True)


def reference_fn(x):
    return jax.nn.softmax(x, axis=-1)


def generate_inputs(key):
    return (3 * jax.random.normal(key, (N, D), jnp.float32),)
