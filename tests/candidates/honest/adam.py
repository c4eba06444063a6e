"""Honest: one step of Adam in float32, in place."""
# base: silu_f32

KERNEL_NAME = "adam"
PROBLEM_DESCRIPTION = "Adam step on float32[256, 256]"

EACH = 12


def _kernel(p, m, v, g, p2, m2, v2):
    m_new = 0.9 * m[...] + 0.1 * g[...]
    v_new = 0.999 * v[...] + 0.001 * g[...] * g[...]
    p2[...] = p[...] - 1e-3 * (m_new / (1 - 0.9)) / (jnp.sqrt(v_new / (1 - 0.999)) + 1e-8)
    m2[...], v2[...] = m_new, v_new


def kernel_fn(p, m, v, g):
    return _by_rows(_kernel, p, m, v, g, input_output_aliases={0: 0, 1: 1, 2: 2})


def reference_fn(p, m, v, g):
    m = 0.9 * m + (1 - 0.9) * g
    v = 0.999 * v + (1 - 0.999) * jnp.square(g)
    step = (m / (1 - 0.9)) / (jnp.sqrt(v / (1 - 0.999)) + 1e-8)
    return p - 1e-3 * step, m, v


def generate_inputs(key):
    p, m, v, g = (jax.random.normal(part, (N, D), jnp.float32) for part in jax.random.split(key, 4))
    return p, 0.1 * m, 0.01 * v * v, g
