"""Honest: log odds of probabilities, as one quotient, float32."""
# base: silu_f32

KERNEL_NAME = "logit"
PROBLEM_DESCRIPTION = "log(p) - log(1 - p) of float32[256, 256]"


def _kernel(p, o):
    o[...] = jnp.log(p[...] / (1 - p[...]))


def reference_fn(p):
    return jnp.log(p) - jnp.log1p(-p)


def generate_inputs(key):
    return (jax.random.uniform(key, (N, D), minval=0.02, maxval=0.98),)
