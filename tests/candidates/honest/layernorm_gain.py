"""Honest: layer normalisation with gain and bias, bfloat16 in and out, float32 inside."""
# base: silu_f32

KERNEL_NAME = "layernorm_gain"
PROBLEM_DESCRIPTION = "layer normalisation of bfloat16[256, 1024] with gain and bias"

N, D, B = 256, 1024, 64
EACH = 5


def _normalise(x, g, b):
    x = x.astype(jnp.float32)
    c = x - jnp.mean(x, axis=1, keepdims=True)
    n = c * jax.lax.rsqrt(jnp.mean(c * c, axis=1, keepdims=True) + 1e-6)
    return (n * g.astype(jnp.float32) + b.astype(jnp.float32)).astype(jnp.bfloat16)


def _kernel(x, g, b, o):
    o[...] = _normalise(x[...], g[...], b[...])


def reference_fn(x, g, b):
    x = x.astype(jnp.float32)
    mean = x.mean(1, keepdims=True)
    variance = x.var(1, keepdims=True)
    y = (x - mean) / jnp.sqrt(variance + 1e-6) * g.astype(jnp.float32) + b.astype(jnp.float32)
    return y.astype(jnp.bfloat16)


def generate_inputs(key):
    a, b, c = jax.random.split(key, 3)
    gain = 1 + 0.2 * jax.random.normal(b, (1, D), jnp.float32)
    bias = 0.1 * jax.random.normal(c, (1, D), jnp.bfloat16)
    return jax.random.normal(a, (N, D), jnp.bfloat16), gain.astype(jnp.bfloat16), bias
