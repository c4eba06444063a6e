"""Honest: a step of gradient descent with momentum, parameters in bfloat16, in place."""
# base: silu_f32

KERNEL_NAME = "sgd_momentum"
PROBLEM_DESCRIPTION = "momentum step on bfloat16[256, 256]"

EACH = 4


def _kernel(p, m, g, p2, m2):
    new = 0.9 * m[...] + g[...].astype(jnp.float32)
    m2[...] = new
    p2[...] = (p[...].astype(jnp.float32) - 0.05 * new).astype(p2.dtype)


def kernel_fn(p, m, g):
    return _by_rows(_kernel, p, m, g, input_output_aliases={0: 0, 1: 1})


def reference_fn(p, m, g):
    m = 0.9 * m + g.astype(jnp.float32)
    return (p.astype(jnp.float32) - 0.05 * m).astype(p.dtype), m


def generate_inputs(key):
    a, b, c = jax.random.split(key, 3)
    return (
        jax.random.normal(a, (N, D), jnp.bfloat16),
        jax.random.normal(b, (N, D), jnp.float32),
        jax.random.normal(c, (N, D), jnp.bfloat16),
    )
