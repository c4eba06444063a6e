"""Cheat 2: says that steps run on two cores."""
# rejected as: COMPILE_FAILED
# kind: cores that are not there
# caught by: jailed compiler
# base: row_softmax
# left out of: tests, quick

from jax.experimental.pallas import tpu as pltpu


def kernel_fn(x):
    return _by_rows(_kernel, x, compiler_params=pltpu.CompilerParams(dimension_semantics=(pltpu.CORE_PARALLEL,)))
