"""Honest: RMS normalisation of a sum with the residual stream; both are outputs."""
# base: silu_f32

KERNEL_NAME = "rmsnorm_residual"
PROBLEM_DESCRIPTION = "RMS normalisation of x + r, bfloat16[256, 512], and the sum"

N, D, B = 256, 512, 64
EACH = 5


def _kernel(x, r, g, o, s):
    total = x[...].astype(jnp.float32) + r[...].astype(jnp.float32)
    s[...] = total.astype(s.dtype)
    scale = jax.lax.rsqrt(jnp.mean(total * total, axis=1, keepdims=True) + 1e-5)
    o[...] = (total * scale * g[...]).astype(o.dtype)


def reference_fn(x, r, g):
    s = x.astype(jnp.float32) + r.astype(jnp.float32)
    y = s * jax.lax.rsqrt(jnp.mean(s * s, axis=-1, keepdims=True) + 1e-5) * g
    return y.astype(x.dtype), s.astype(x.dtype)


def generate_inputs(key):
    a, b, c = jax.random.split(key, 3)
    return (
        jax.random.normal(a, (N, D), jnp.bfloat16),
        jax.random.normal(b, (N, D), jnp.bfloat16),
        1 + 0.2 * jax.random.normal(c, (1, D), jnp.float32),
    )
