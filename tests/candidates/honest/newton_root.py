"""Honest: eight steps of Heron's method from a positive start, float32."""
# base: silu_f32

KERNEL_NAME = "newton_root"
PROBLEM_DESCRIPTION = "8 steps of y = (y + x / y) / 2 from y = x, float32[256, 256]"

STEPS = 8


def _kernel(x, o):
    v = x[...]
    o[...] = jax.lax.fori_loop(0, STEPS, lambda _, y: 0.5 * y + 0.5 * v / y, v)


def reference_fn(x):
    return jax.lax.fori_loop(0, STEPS, lambda _, y: 0.5 * (y + x / y), x)


def generate_inputs(key):
    return (jax.random.uniform(key, (N, D), minval=0.5, maxval=2.0),)
