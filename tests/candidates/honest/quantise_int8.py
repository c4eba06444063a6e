"""Honest: dynamic quantisation of rows to int8; the scales are given."""
# base: silu_f32

KERNEL_NAME = "quantise_int8"
PROBLEM_DESCRIPTION = "quantisation of float32[256, 256] to int8"


def _kernel(x, y, o):
    o[...] = jnp.clip(jnp.round(x[...] * (1.0 / y[...])), -127, 127).astype(jnp.int8)


def reference_fn(x, y):
    return jnp.clip(jnp.round(x / y), -127, 127).astype(jnp.int8)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (N, D), jnp.float32), 0.01 + 0.03 * jax.random.uniform(b, (N, 1), jnp.float32)
