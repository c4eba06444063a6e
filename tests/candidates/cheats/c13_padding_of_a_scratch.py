"""Cheat 13: sums a whole tile of scratch memory of which only the rows that it has were written."""
# rejected as: MEMORY_HAZARD
# kind: memory never written
# caught by: unwritten memory
# left out of: tests
# base: row_softmax

from jax.experimental.pallas import tpu as pltpu


def _kernel(x, o, kept):
    kept[:, :D] = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    o[...] = kept[:, :D] / jnp.sum(kept[...], axis=1, keepdims=True)


def kernel_fn(x):
    return _by_rows(_kernel, x, scratch_shapes=[pltpu.VMEM((B, D + 128), jnp.float32)])
