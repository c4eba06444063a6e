"""Honest: the divergence of two rows of probabilities, by the logarithm of their quotient, float32."""
# base: silu_f32

KERNEL_NAME = "kl_divergence"
PROBLEM_DESCRIPTION = "sum of p (log p - log q) over rows of float32[256, 256]"


def _kernel(p, q, o):
    o[...] = jnp.sum(p[...] * jnp.log(p[...] / q[...]), axis=1, keepdims=True)


def reference_fn(p, q):
    return jnp.sum(p * (jnp.log(p) - jnp.log(q)), axis=1, keepdims=True)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return tuple(jax.nn.softmax(jax.random.normal(one, (N, D)), axis=1) for one in (a, b))
