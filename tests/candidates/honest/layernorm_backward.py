"""Honest: the gradient of layer normalisation for its input, float32."""
# base: silu_f32

KERNEL_NAME = "layernorm_backward"
PROBLEM_DESCRIPTION = "gradient of layer normalisation, float32[256, 512]"

N, D, B = 256, 512, 64
EACH = 9


def _kernel(x, g, dy, dx):
    c = x[...] - jnp.mean(x[...], axis=1, keepdims=True)
    r = jax.lax.rsqrt(jnp.mean(c * c, axis=1, keepdims=True) + 1e-6)
    n, d = c * r, dy[...] * g[...]
    dx[...] = r * (d - jnp.mean(d, axis=1, keepdims=True) - n * jnp.mean(d * n, axis=1, keepdims=True))


def _forward(x, g):
    c = x - jnp.mean(x, axis=1, keepdims=True)
    return c * jax.lax.rsqrt(jnp.mean(c * c, axis=1, keepdims=True) + 1e-6) * g


def reference_fn(x, g, dy):
    return jax.vjp(lambda x: _forward(x, g), x)[1](dy)[0]


def generate_inputs(key):
    a, b, c = jax.random.split(key, 3)
    return (
        jax.random.normal(a, (N, D), jnp.float32),
        1 + 0.2 * jax.random.normal(b, (1, D), jnp.float32),
        jax.random.normal(c, (N, D), jnp.float32),
    )
