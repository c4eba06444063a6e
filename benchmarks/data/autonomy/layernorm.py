"""Layer normalisation with gain and bias: x bfloat16[4096, 2048]; gain, bias float32[2048] -> bfloat16[4096, 2048].

Every element is read once and written once for a dozen operations, so HBM bandwidth bounds it. A grid step costs a
fixed latency for its DMAs whatever their size, and the blocks of this start are small. First mutation to try: a larger
BLOCK.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "layernorm"
PROBLEM_DESCRIPTION = "layer normalisation with gain and bias of bfloat16[4096, 2048] over its rows"

ROWS, WIDTH = 4096, 2048
EPSILON = 1e-5

BLOCK = 16


def _normalise(x_ref, gain_ref, bias_ref, o_ref):
    x = x_ref[...].astype(jnp.float32)
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=1, keepdims=True)
    o_ref[...] = (centred * jax.lax.rsqrt(variance + EPSILON) * gain_ref[...] + bias_ref[...]).astype(o_ref.dtype)


def kernel_fn(x, gain, bias):
    """x bfloat16[ROWS, WIDTH]; gain, bias float32[WIDTH] -> bfloat16[ROWS, WIDTH]."""
    rows = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0))
    vector = pl.BlockSpec((WIDTH,), lambda i: (0,))
    return pl.pallas_call(
        _normalise,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(ROWS // BLOCK,),
        in_specs=[rows, vector, vector],
        out_specs=rows,
    )(x, gain, bias)


def reference_fn(x, gain, bias):
    """The same in plain jax.numpy."""
    wide = x.astype(jnp.float32)
    centred = wide - jnp.mean(wide, axis=1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + EPSILON) * gain + bias).astype(x.dtype)


def generate_inputs(key):
    """Standard normal x; a gain around 1 and a bias around 0."""
    x, gain, bias = jax.random.split(key, 3)
    return (
        jax.random.normal(x, (ROWS, WIDTH), jnp.bfloat16),
        1 + 0.1 * jax.random.normal(gain, (WIDTH,), jnp.float32),
        0.1 * jax.random.normal(bias, (WIDTH,), jnp.float32),
    )


def compute_flops():
    """Useful FLOPs: mean 1, centring 1, variance 2, scaling 1, gain and bias 2 per element."""
    return 7 * ROWS * WIDTH


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    block, array, vector = BLOCK * WIDTH * 2, ROWS * WIDTH * 2, WIDTH * 4
    return {
        "grid": [ROWS // BLOCK],
        "buffers": [
            {"name": "x", "size_bytes": block, "double_buffered": True},
            {"name": "gain", "size_bytes": vector, "double_buffered": False},
            {"name": "bias", "size_bytes": vector, "double_buffered": False},
            {"name": "o", "size_bytes": block, "double_buffered": True},
        ],
        "inputs": [
            {"name": "x", "size_bytes": array, "re_reads": 1},
            {"name": "gain", "size_bytes": vector, "re_reads": 1},
            {"name": "bias", "size_bytes": vector, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": array, "re_reads": 1}],
        "vreg_estimate_bytes": 2 * BLOCK * WIDTH * 4,
    }
