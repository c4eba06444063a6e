"""Honest: a sample by Gumbel noise that is made of given uniforms, which have to be between zero and one, float32."""
# base: silu_f32

KERNEL_NAME = "gumbel_argmax"
PROBLEM_DESCRIPTION = "argmax of float32[256, 256] over a temperature plus Gumbel noise of uniforms"


def _kernel(x, u, t, o):
    z = x[...] / t[...] - jnp.log(-jnp.log(u[...]))
    at = jax.lax.broadcasted_iota(jnp.int32, z.shape, 1)
    o[...] = jnp.min(jnp.where(z == jnp.max(z, axis=1, keepdims=True), at, D), axis=1, keepdims=True)


def reference_fn(x, u, t):
    return jnp.argmax(x / t - jnp.log(-jnp.log(u)), axis=1, keepdims=True).astype(jnp.int32)


def generate_inputs(key):
    a, b, c = jax.random.split(key, 3)
    return (
        2 * jax.random.normal(a, (N, D)),
        jax.random.uniform(b, (N, D), minval=1e-6, maxval=1 - 1e-6),
        jax.random.uniform(c, (N, 1), minval=0.5, maxval=1.5),
    )
