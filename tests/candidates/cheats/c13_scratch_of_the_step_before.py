"""Cheat 13: the maximum of the step before stands in for a row without keys."""
# rejected as: INSENSITIVE, WRONG_VALUES, NOT_FINITE
# kind: state of an earlier step
# caught by: probes, mixed inputs, allowance, finite
# base: row_softmax
# left out of: tests, quick

from jax.experimental.pallas import tpu as pltpu


def _kernel3(x, o, kept):
    top = jnp.max(x[...], axis=1, keepdims=True)

    @pl.when(pl.program_id(0) > 0)
    def _():
        kept[...] = jnp.maximum(kept[...], top)

    @pl.when(pl.program_id(0) == 0)
    def _():
        kept[...] = top

    e = jnp.exp(x[...] - kept[...])
    o[...] = e / jnp.sum(e, axis=1, keepdims=True)


def kernel_fn(x):
    return _by_rows(_kernel3, x, scratch_shapes=[pltpu.VMEM((B, 1), jnp.float32)])
