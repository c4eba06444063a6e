"""RMSNorm of a sum: s = x + residual; returns s / rms(s) * gain and s, all bfloat16[2048, 4096], gain float32[4096].

Two arrays are read and two are written for a few operations an element, so HBM bandwidth bounds it. One kernel adds and
normalises. Mutation to try next: an output that takes over the buffer of an input.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "rmsnorm_residual"
PROBLEM_DESCRIPTION = "RMSNorm with gain of x + residual, and the sum itself, bfloat16[2048, 4096]"

ROWS, WIDTH = 2048, 4096
EPSILON = 1e-6

BLOCK = 32


def _add_and_normalise(x_ref, residual_ref, gain_ref, o_ref, sum_ref):
    total = (x_ref[...].astype(jnp.float32) + residual_ref[...].astype(jnp.float32)).astype(sum_ref.dtype)
    sum_ref[...] = total
    s = total.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(s * s, axis=1, keepdims=True) + EPSILON)
    o_ref[...] = (s * scale * gain_ref[...]).astype(o_ref.dtype)


def kernel_fn(x, residual, gain):
    """x, residual bfloat16[ROWS, WIDTH], gain float32[WIDTH] -> the normalised sum and the sum."""
    rows = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0))
    vector = pl.BlockSpec((WIDTH,), lambda i: (0,))
    array = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        _add_and_normalise,
        out_shape=(array, array),
        grid=(ROWS // BLOCK,),
        in_specs=[rows, rows, vector],
        out_specs=(rows, rows),
    )(x, residual, gain)


def reference_fn(x, residual, gain):
    """The same in plain jax.numpy: the sum is rounded to bfloat16 before it is normalised."""
    total = (x.astype(jnp.float32) + residual.astype(jnp.float32)).astype(x.dtype)
    s = total.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(s * s, axis=1, keepdims=True) + EPSILON)
    return (s * scale * gain).astype(x.dtype), total


def generate_inputs(key):
    """Standard normal x and residual; a gain around 1."""
    x, residual, gain = jax.random.split(key, 3)
    return (
        jax.random.normal(x, (ROWS, WIDTH), jnp.bfloat16),
        jax.random.normal(residual, (ROWS, WIDTH), jnp.bfloat16),
        1 + 0.1 * jax.random.normal(gain, (WIDTH,), jnp.float32),
    )


def compute_flops():
    """Useful FLOPs per element: the sum 1, the mean of squares 2, scale and gain 2."""
    return 5 * ROWS * WIDTH


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    block, array, vector = BLOCK * WIDTH * 2, ROWS * WIDTH * 2, WIDTH * 4
    return {
        "grid": [ROWS // BLOCK],
        "buffers": [
            {"name": "x", "size_bytes": block, "double_buffered": True},
            {"name": "residual", "size_bytes": block, "double_buffered": True},
            {"name": "gain", "size_bytes": vector, "double_buffered": False},
            {"name": "normal", "size_bytes": block, "double_buffered": True},
            {"name": "sum", "size_bytes": block, "double_buffered": True},
        ],
        "inputs": [
            {"name": "x", "size_bytes": array, "re_reads": 1},
            {"name": "residual", "size_bytes": array, "re_reads": 1},
            {"name": "gain", "size_bytes": vector, "re_reads": 1},
        ],
        "outputs": [
            {"name": "normal", "size_bytes": array, "re_reads": 1},
            {"name": "sum", "size_bytes": array, "re_reads": 1},
        ],
        "vreg_estimate_bytes": 2 * BLOCK * WIDTH * 4,
    }
