"""Honest: a cross entropy of probabilities, not of logits, float32."""
# base: silu_f32

KERNEL_NAME = "entropy_of_two"
PROBLEM_DESCRIPTION = "binary cross entropy of probabilities and targets, float32[256, 256]"


def _kernel(p, y, o):
    a, b = jnp.log(p[...]), jnp.log1p(-p[...])
    o[...] = y[...] * (b - a) - b


def reference_fn(p, y):
    return -(y * jnp.log(p) + (1 - y) * jnp.log1p(-p))


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.uniform(a, (N, D), minval=0.01, maxval=0.99), jax.random.uniform(b, (N, D))
