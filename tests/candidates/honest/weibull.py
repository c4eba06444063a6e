"""Honest: samples of a Weibull distribution from uniforms by its inverse, float32."""
# base: silu_f32

KERNEL_NAME = "weibull"
PROBLEM_DESCRIPTION = "b (-log(1 - u))**(1 / k), u of float32[256, 256], a scale and a shape for each row"


def _kernel(u, b, k, o):
    o[...] = b[...] * jnp.exp(jnp.log(-jnp.log1p(-u[...])) / k[...])


def reference_fn(u, b, k):
    return b * (-jnp.log1p(-u)) ** (1 / k)


def generate_inputs(key):
    x, y, z = jax.random.split(key, 3)
    u = jax.random.uniform(x, (N, D), minval=0.05, maxval=0.95)
    return u, jax.random.uniform(y, (N, 1), minval=0.5), jax.random.uniform(z, (N, 1), minval=0.5, maxval=2)
