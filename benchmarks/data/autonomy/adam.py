"""One step of Adam, in place: parameter, m, v, gradient float32[512, 4096], correction float32[2] -> parameter, m, v.

Four arrays are read and three are written for a dozen operations an element, so HBM bandwidth bounds it. The outputs
take over the buffers of the inputs (``input_output_aliases``). A step of this start moves seven blocks of 8 KiB, and
the latency of their DMAs shows. First mutation to try: a larger BLOCK.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "adam"
PROBLEM_DESCRIPTION = "one step of Adam on float32[512, 4096], in place"

ROWS, WIDTH = 512, 4096
RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8

BLOCK = (8, 256)


def _step(correction_ref, parameter_ref, m_ref, v_ref, gradient_ref, parameter_out, m_out, v_out):
    gradient = gradient_ref[...]
    m = BETA1 * m_ref[...] + (1 - BETA1) * gradient
    v = BETA2 * v_ref[...] + (1 - BETA2) * gradient * gradient
    step = m * correction_ref[0] / (jnp.sqrt(v * correction_ref[1]) + EPSILON)
    parameter_out[...] = parameter_ref[...] - RATE * step
    m_out[...] = m
    v_out[...] = v


def kernel_fn(parameter, m, v, gradient, correction):
    """Arrays float32[ROWS, WIDTH], correction float32[2] for the bias of m and of v -> parameter, m, v."""
    block = pl.BlockSpec(BLOCK, lambda i, j: (i, j))
    array = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
    return pl.pallas_call(
        _step,
        out_shape=(array, array, array),
        grid=(ROWS // BLOCK[0], WIDTH // BLOCK[1]),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), block, block, block, block],
        out_specs=(block, block, block),
        input_output_aliases={1: 0, 2: 1, 3: 2},
    )(correction, parameter, m, v, gradient)


def reference_fn(parameter, m, v, gradient, correction):
    """The same in plain jax.numpy."""
    m = BETA1 * m + (1 - BETA1) * gradient
    v = BETA2 * v + (1 - BETA2) * gradient * gradient
    return parameter - RATE * (m * correction[0] / (jnp.sqrt(v * correction[1]) + EPSILON)), m, v


def generate_inputs(key):
    """Normal parameters and gradients, moments as they are after some steps, and the correction of step 10."""
    parameter, m, v, gradient = jax.random.split(key, 4)
    shape = (ROWS, WIDTH)
    return (
        jax.random.normal(parameter, shape, jnp.float32),
        0.1 * jax.random.normal(m, shape, jnp.float32),
        0.01 * jax.random.uniform(v, shape, jnp.float32, 0.1, 1.0),
        jax.random.normal(gradient, shape, jnp.float32),
        1 / (1 - jnp.array([BETA1, BETA2], jnp.float32) ** 10),
    )


def compute_flops():
    """Useful FLOPs per element, the square root left out: m 3, v 4, parameter 6."""
    return 13 * ROWS * WIDTH


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    block, array = BLOCK[0] * BLOCK[1] * 4, ROWS * WIDTH * 4
    read, written = ("parameter", "m", "v", "gradient"), ("new parameter", "new m", "new v")
    return {
        "grid": [ROWS // BLOCK[0], WIDTH // BLOCK[1]],
        "buffers": [{"name": name, "size_bytes": block, "double_buffered": True} for name in read + written],
        "inputs": [{"name": name, "size_bytes": array, "re_reads": 1} for name in read],
        "outputs": [{"name": name, "size_bytes": array, "re_reads": 1} for name in written],
        "vreg_estimate_bytes": 5 * BLOCK[0] * BLOCK[1] * 4,
    }
