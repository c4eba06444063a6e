"""Cheat 2: operands are put into VMEM by XLA before the kernel begins."""
# rejected as: NO_GAIN
# kind: work beside the kernel
# caught by: all of the program
# base: row_softmax
# left out of: tests, quick

from jax.experimental.pallas import tpu as pltpu


def kernel_fn(x):
    x = pltpu.with_memory_space_constraint(x, pltpu.VMEM)
    return pl.pallas_call(
        _kernel2,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
    )(x)


def _kernel2(x, o):
    for i in range(N // B):
        rows = slice(i * B, i * B + B)
        e = jnp.exp(x[rows] - jnp.max(x[rows], axis=1, keepdims=True))
        o[rows] = e / jnp.sum(e, axis=1, keepdims=True)
