"""Backward pass of RMS normalisation at Llama-3 8B's width: bfloat16[8192, 4096] x and dy, a gain -> dx, dgain.

Two arrays are read and one is written for a dozen operations an element, so HBM bandwidth bounds it. One kernel finds
both results. Mutation to try next: none is known, HBM is busy to the end.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "rmsnorm_backward"
PROBLEM_DESCRIPTION = "dx, dgain of RMS normalisation over the rows of bfloat16[8192, 4096]"

ROWS, WIDTH = 8192, 4096
EPSILON = 1e-5

BLOCK = 64
STRIP = 32  # rows that are computed together


def _gradients(x_ref, dy_ref, gain_ref, dx_ref, dgain_ref):
    @pl.when(pl.program_id(0) == 0)
    def _start():
        dgain_ref[...] = jnp.zeros_like(dgain_ref)

    gained = jnp.zeros((1, WIDTH), jnp.float32)
    for first in range(0, BLOCK, STRIP):
        rows = slice(first, first + STRIP)
        x, dy = x_ref[rows, :].astype(jnp.float32), dy_ref[rows, :].astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + EPSILON)
        normal, slope = x * scale, dy * gain_ref[...]
        along = jnp.mean(slope * normal, axis=1, keepdims=True)
        dx_ref[rows, :] = ((slope - normal * along) * scale).astype(dx_ref.dtype)
        gained += jnp.sum(dy * normal, axis=0, keepdims=True)
    dgain_ref[...] += gained[0]


def kernel_fn(x, dy, gain):
    """x, dy bfloat16[ROWS, WIDTH], gain float32[WIDTH] -> bfloat16[ROWS, WIDTH], float32[WIDTH]."""
    rows = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0))
    vector = pl.BlockSpec((WIDTH,), lambda i: (0,))
    return pl.pallas_call(
        _gradients,
        out_shape=(jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((WIDTH,), jnp.float32)),
        grid=(ROWS // BLOCK,),
        in_specs=[rows, rows, vector],
        out_specs=(rows, vector),
    )(x, dy, gain)


def reference_fn(x, dy, gain):
    """The same in plain jax.numpy."""
    x, dy = x.astype(jnp.float32), dy.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + EPSILON)
    normal, slope = x * scale, dy * gain
    along = jnp.mean(slope * normal, axis=1, keepdims=True)
    return ((slope - normal * along) * scale).astype(jnp.bfloat16), jnp.sum(dy * normal, axis=0)


def generate_inputs(key):
    """Standard normal x and dy; a gain around 1."""
    x, dy, gain = jax.random.split(key, 3)
    return (
        jax.random.normal(x, (ROWS, WIDTH), jnp.bfloat16),
        jax.random.normal(dy, (ROWS, WIDTH), jnp.bfloat16),
        1 + 0.1 * jax.random.normal(gain, (WIDTH,), jnp.float32),
    )


def compute_flops():
    """Useful FLOPs per element: the mean of squares 2, normal 1, slope 1, its mean 2, dx 3, the sum over rows 2."""
    return 11 * ROWS * WIDTH


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    block, array, vector = BLOCK * WIDTH * 2, ROWS * WIDTH * 2, WIDTH * 4
    return {
        "grid": [ROWS // BLOCK],
        "buffers": [
            {"name": "x", "size_bytes": block, "double_buffered": True},
            {"name": "dy", "size_bytes": block, "double_buffered": True},
            {"name": "gain", "size_bytes": vector, "double_buffered": False},
            {"name": "dx", "size_bytes": block, "double_buffered": True},
            {"name": "dgain", "size_bytes": vector, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": array, "re_reads": 1},
            {"name": "dy", "size_bytes": array, "re_reads": 1},
            {"name": "gain", "size_bytes": vector, "re_reads": 1},
        ],
        "outputs": [
            {"name": "dx", "size_bytes": array, "re_reads": 1},
            {"name": "dgain", "size_bytes": vector, "re_reads": 1},
        ],
        "vreg_estimate_bytes": 4 * STRIP * WIDTH * 4,
    }
