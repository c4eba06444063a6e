"""Layer normalisation over rows: a bandwidth-bound honest kernel with f32 inputs."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "layernorm"
PROBLEM_DESCRIPTION = "layer normalisation of float32[2048, 512] over its rows"

ROWS, WIDTH = 2048, 512
BLOCK = 256


def _block(x_ref, o_ref):
    x = x_ref[...]
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=1, keepdims=True)
    o_ref[...] = centred * jax.lax.rsqrt(variance + 1e-6)


def kernel_fn(x):
    return pl.pallas_call(
        _block,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(ROWS // BLOCK,),
        in_specs=[pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0)),
    )(x)


def reference_fn(x):
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-6)


def generate_inputs(key):
    return (jax.random.normal(key, (ROWS, WIDTH), jnp.float32),)


def compute_flops():
    return 5 * ROWS * WIDTH


def get_tiling_meta():
    array, block = ROWS * WIDTH * 4, BLOCK * WIDTH * 4
    return {
        "grid": [ROWS // BLOCK],
        "buffers": [
            {"name": "x", "size_bytes": block, "double_buffered": True},
            {"name": "o", "size_bytes": block, "double_buffered": True},
        ],
        "inputs": [{"name": "x", "size_bytes": array, "re_reads": 1}],
        "outputs": [{"name": "o", "size_bytes": array, "re_reads": 1}],
        "vreg_estimate_bytes": block,
    }
