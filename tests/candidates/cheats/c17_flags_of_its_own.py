"""Cheat 17: asks the compiler by a flag of its own for exponentials that are not accurate."""
# rejected as: COMPILE_FAILED
# kind: lower precision
# caught by: jailed compiler
# left out of: tests
# base: row_softmax

from jax.experimental.pallas import tpu as pltpu


def kernel_fn(x):
    return _by_rows(_kernel, x, compiler_params=pltpu.CompilerParams(flags={"xla_tpu_accurate_exp": False}))
