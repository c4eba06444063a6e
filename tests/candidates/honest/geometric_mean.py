"""Honest: the geometric mean of rows, by powers of two, float32."""
# base: silu_f32

KERNEL_NAME = "geometric_mean"
PROBLEM_DESCRIPTION = "geometric mean over rows of float32[256, 256]"


def _kernel(x, o):
    o[...] = jnp.exp2(jnp.sum(jnp.log2(x[...]), axis=1, keepdims=True) * (1 / D))


def reference_fn(x):
    return jnp.exp(jnp.mean(jnp.log(x), axis=1, keepdims=True))


def generate_inputs(key):
    return (jax.random.uniform(key, (N, D), minval=0.1, maxval=3.0),)
