"""Honest: a sum whose first addend XLA may fuse into the kernel."""
# base: silu_f32

from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "input_fusion"
PROBLEM_DESCRIPTION = "2 x + y of float32[256, 256]"


def _kernel(x, y, o):
    o[...] = x[...] + y[...]


def kernel_fn(x, y):
    return _by_rows(_kernel, x * 2, y, compiler_params=pltpu.CompilerParams(allow_input_fusion=[True, False]))


def reference_fn(x, y):
    return x * 2 + y


def generate_inputs(key):
    return tuple(jax.random.normal(part, (N, D), jnp.float32) for part in jax.random.split(key, 2))
