"""Honest: RMS normalisation with a gain, bfloat16 in and out."""
# base: silu_f32

KERNEL_NAME = "rmsnorm_gain"
PROBLEM_DESCRIPTION = "RMS normalisation of bfloat16[256, 1024] with a gain"

N, D, B = 256, 1024, 64
EACH = 4


def _kernel(x, g, o):
    v = x[...].astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(v * v, axis=1, keepdims=True) + 1e-6)
    o[...] = (v * scale * g[...].astype(jnp.float32)).astype(o.dtype)


def reference_fn(x, g):
    x = x.astype(jnp.float32)
    y = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6) * g.astype(jnp.float32)
    return y.astype(jnp.bfloat16)


def generate_inputs(key):
    a, b = jax.random.split(key)
    gain = (1 + 0.2 * jax.random.normal(b, (1, D), jnp.float32)).astype(jnp.bfloat16)
    return jax.random.normal(a, (N, D), jnp.bfloat16), gain
