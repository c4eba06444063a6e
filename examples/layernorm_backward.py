"""Backward pass of layer normalisation: x, dy bfloat16[4096, 2048], gain float32[2048] -> dx, dgain, dbias.

Two arrays are read and one is written for some twenty operations an element, so HBM bandwidth bounds it. One kernel
finds all three results, and adds up the sums over rows in output blocks that stay in VMEM. Mutation to try next: sums
of eight rows that are reduced once, at the end.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "layernorm_backward"
PROBLEM_DESCRIPTION = "dx, dgain, dbias of layer normalisation over the rows of bfloat16[4096, 2048]"

ROWS, WIDTH = 4096, 2048
EPSILON = 1e-5

BLOCK = 64


def _gradients(x_ref, dy_ref, gain_ref, dx_ref, dgain_ref, dbias_ref):
    @pl.when(pl.program_id(0) == 0)
    def _start():
        dgain_ref[...] = jnp.zeros_like(dgain_ref)
        dbias_ref[...] = jnp.zeros_like(dbias_ref)

    x, dy = x_ref[...].astype(jnp.float32), dy_ref[...].astype(jnp.float32)
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(centred * centred, axis=1, keepdims=True) + EPSILON)
    normal, slope = centred * scale, dy * gain_ref[...]
    along = jnp.mean(slope * normal, axis=1, keepdims=True)
    dx_ref[...] = ((slope - jnp.mean(slope, axis=1, keepdims=True) - normal * along) * scale).astype(dx_ref.dtype)
    dgain_ref[...] += jnp.sum(dy * normal, axis=0)
    dbias_ref[...] += jnp.sum(dy, axis=0)


def kernel_fn(x, dy, gain):
    """x, dy bfloat16[ROWS, WIDTH], gain float32[WIDTH] -> bfloat16[ROWS, WIDTH], float32[WIDTH], float32[WIDTH]."""
    rows = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0))
    vector = pl.BlockSpec((WIDTH,), lambda i: (0,))
    sums = jax.ShapeDtypeStruct((WIDTH,), jnp.float32)
    return pl.pallas_call(
        _gradients,
        out_shape=(jax.ShapeDtypeStruct(x.shape, x.dtype), sums, sums),
        grid=(ROWS // BLOCK,),
        in_specs=[rows, rows, vector],
        out_specs=(rows, vector, vector),
    )(x, dy, gain)


def reference_fn(x, dy, gain):
    """The same in plain jax.numpy."""
    wide, dy = x.astype(jnp.float32), dy.astype(jnp.float32)
    centred = wide - jnp.mean(wide, axis=1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(centred * centred, axis=1, keepdims=True) + EPSILON)
    normal, slope = centred * scale, dy * gain
    along = jnp.mean(slope * normal, axis=1, keepdims=True)
    dx = (slope - jnp.mean(slope, axis=1, keepdims=True) - normal * along) * scale
    return dx.astype(x.dtype), jnp.sum(dy * normal, axis=0), jnp.sum(dy, axis=0)


def generate_inputs(key):
    """Standard normal x and dy; a gain around 1."""
    x, dy, gain = jax.random.split(key, 3)
    return (
        jax.random.normal(x, (ROWS, WIDTH), jnp.bfloat16),
        jax.random.normal(dy, (ROWS, WIDTH), jnp.bfloat16),
        1 + 0.1 * jax.random.normal(gain, (WIDTH,), jnp.float32),
    )


def compute_flops():
    """Useful FLOPs per element: statistics 5, slope 1, its two means 3, dx 4, the two sums over rows 3."""
    return 16 * ROWS * WIDTH


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
            {"name": "dbias", "size_bytes": vector, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": array, "re_reads": 1},
            {"name": "dy", "size_bytes": array, "re_reads": 1},
            {"name": "gain", "size_bytes": vector, "re_reads": 1},
        ],
        "outputs": [
            {"name": "dx", "size_bytes": array, "re_reads": 1},
            {"name": "dgain", "size_bytes": vector, "re_reads": 1},
            {"name": "dbias", "size_bytes": vector, "re_reads": 1},
        ],
        "vreg_estimate_bytes": 4 * BLOCK * WIDTH * 4,
    }
