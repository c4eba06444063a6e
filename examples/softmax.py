"""Softmax over a vocabulary: x float32[512, 16384] -> float32[512, 16384].

Every element is read once and written once, so HBM bandwidth bounds it. A step holds whole rows in VMEM, so x is read
once. Mutation to try next: more rows in a step.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "softmax"
PROBLEM_DESCRIPTION = "softmax over the rows of float32[512, 16384]"

ROWS, WIDTH = 512, 16384

BLOCK = 8


def _normalise(x_ref, o_ref):
    x = x_ref[...]
    weights = jnp.exp(x - jnp.max(x, axis=1, keepdims=True))
    o_ref[...] = weights / jnp.sum(weights, axis=1, keepdims=True)


def kernel_fn(x):
    """x float32[ROWS, WIDTH] -> float32[ROWS, WIDTH]."""
    rows = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0))
    return pl.pallas_call(
        _normalise,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(ROWS // BLOCK,),
        in_specs=[rows],
        out_specs=rows,
    )(x)


def reference_fn(x):
    """The same in plain jax.numpy."""
    return jax.nn.softmax(x, axis=1)


def generate_inputs(key):
    """Normal logits with a deviation of 3."""
    return (3 * jax.random.normal(key, (ROWS, WIDTH), jnp.float32),)


def compute_flops():
    """Useful FLOPs per element: difference, exponential, sum, quotient."""
    return 4 * ROWS * WIDTH


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    block, array = BLOCK * WIDTH * 4, ROWS * WIDTH * 4
    return {
        "grid": [ROWS // BLOCK],
        "buffers": [
            {"name": "x", "size_bytes": block, "double_buffered": True},
            {"name": "o", "size_bytes": block, "double_buffered": True},
        ],
        "inputs": [{"name": "x", "size_bytes": array, "re_reads": 1}],
        "outputs": [{"name": "o", "size_bytes": array, "re_reads": 1}],
        "vreg_estimate_bytes": 2 * BLOCK * WIDTH * 4,
    }
