"""Backward pass of layer normalisation: x, dy bfloat16[4096, 2048], gain float32[2048] -> dx, dgain, dbias.

Two arrays are read and one is written for some twenty operations an element, so HBM bandwidth bounds it. This start
makes two passes, one for dx and one for the sums over rows, and reads x and dy in both. First mutation to try: one
kernel for all three results.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "layernorm_backward"
PROBLEM_DESCRIPTION = "dx, dgain, dbias of layer normalisation over the rows of bfloat16[4096, 2048]"

ROWS, WIDTH = 4096, 2048
EPSILON = 1e-5

BLOCK = 16


def _normalised(x):
    """x float32[BLOCK, WIDTH] normalised, and the factor float32[BLOCK, 1] that did it."""
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(centred * centred, axis=1, keepdims=True) + EPSILON)
    return centred * scale, scale


def _input_gradient(x_ref, dy_ref, gain_ref, dx_ref):
    normal, scale = _normalised(x_ref[...].astype(jnp.float32))
    slope = dy_ref[...].astype(jnp.float32) * gain_ref[...]
    along = jnp.mean(slope * normal, axis=1, keepdims=True)
    dx_ref[...] = ((slope - jnp.mean(slope, axis=1, keepdims=True) - normal * along) * scale).astype(dx_ref.dtype)


def _parameter_gradients(x_ref, dy_ref, dgain_ref, dbias_ref):
    @pl.when(pl.program_id(0) == 0)
    def _start():
        dgain_ref[...] = jnp.zeros_like(dgain_ref)
        dbias_ref[...] = jnp.zeros_like(dbias_ref)

    normal, _ = _normalised(x_ref[...].astype(jnp.float32))
    dy = dy_ref[...].astype(jnp.float32)
    dgain_ref[...] += jnp.sum(dy * normal, axis=0)
    dbias_ref[...] += jnp.sum(dy, axis=0)


def kernel_fn(x, dy, gain):
    """x, dy bfloat16[ROWS, WIDTH], gain float32[WIDTH] -> bfloat16[ROWS, WIDTH], float32[WIDTH], float32[WIDTH]."""
    rows = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0))
    vector = pl.BlockSpec((WIDTH,), lambda i: (0,))
    sums = jax.ShapeDtypeStruct((WIDTH,), jnp.float32)
    dx = pl.pallas_call(
        _input_gradient,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(ROWS // BLOCK,),
        in_specs=[rows, rows, vector],
        out_specs=rows,
    )(x, dy, gain)
    dgain, dbias = pl.pallas_call(
        _parameter_gradients,
        out_shape=(sums, sums),
        grid=(ROWS // BLOCK,),
        in_specs=[rows, rows],
        out_specs=(vector, vector),
    )(x, dy)
    return dx, dgain, dbias


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
    """What the author believes about buffers and traffic: the buffers are those of the larger kernel."""
    block, array, vector = BLOCK * WIDTH * 2, ROWS * WIDTH * 2, WIDTH * 4
    return {
        "grid": [2 * (ROWS // BLOCK)],
        "buffers": [
            {"name": "x", "size_bytes": block, "double_buffered": True},
            {"name": "dy", "size_bytes": block, "double_buffered": True},
            {"name": "gain", "size_bytes": vector, "double_buffered": False},
            {"name": "dx", "size_bytes": block, "double_buffered": True},
        ],
        "inputs": [
            {"name": "x", "size_bytes": array, "re_reads": 2},
            {"name": "dy", "size_bytes": array, "re_reads": 2},
            {"name": "gain", "size_bytes": vector, "re_reads": 1},
        ],
        "outputs": [
            {"name": "dx", "size_bytes": array, "re_reads": 1},
            {"name": "dgain", "size_bytes": vector, "re_reads": 1},
            {"name": "dbias", "size_bytes": vector, "re_reads": 1},
        ],
        "vreg_estimate_bytes": 4 * BLOCK * WIDTH * 4,
    }
