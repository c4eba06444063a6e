"""Honest: 1 where x is between two other arrays, int32."""
# base: silu_f32

KERNEL_NAME = "mask_between"
PROBLEM_DESCRIPTION = "float32[256, 256] between two others"


def _kernel(x, y, z, o):
    o[...] = ((x[...] > y[...]) & (x[...] <= z[...])).astype(jnp.int32)


def reference_fn(x, y, z):
    return jnp.logical_and(x > y, x <= z).astype(jnp.int32)


def generate_inputs(key):
    return tuple(jax.random.normal(part, (N, D), jnp.float32) for part in jax.random.split(key, 3))
