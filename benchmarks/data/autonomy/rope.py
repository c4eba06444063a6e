"""Rotary position embedding: q bfloat16[16, 4096, 128] by head; cosine, sine float32[4096, 128] -> like q.

The two halves of a head are the real and imaginary parts of 64 numbers, which are rotated by an angle that grows with
the position. Three operations an element: HBM bandwidth bounds it. This start walks head by head and fetches the tables
for each of them again. First mutation to try: heads in the inner grid dimension, so that a block of the tables stays.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "rope"
PROBLEM_DESCRIPTION = "rotary position embedding of bfloat16[16, 4096, 128]"

HEADS, SEQ, HEAD_DIM = 16, 4096, 128
HALF = HEAD_DIM // 2
BASE = 10000.0

BLOCK = 256


def _rotate(q_ref, cosine_ref, sine_ref, o_ref):
    q = q_ref[0].astype(jnp.float32)
    turned = jnp.concatenate([-q[:, HALF:], q[:, :HALF]], axis=1)
    o_ref[0] = (q * cosine_ref[...] + turned * sine_ref[...]).astype(o_ref.dtype)


def kernel_fn(q, cosine, sine):
    """q bfloat16[HEADS, SEQ, HEAD_DIM]; cosine, sine float32[SEQ, HEAD_DIM] -> bfloat16[HEADS, SEQ, HEAD_DIM]."""
    heads = pl.BlockSpec((1, BLOCK, HEAD_DIM), lambda h, i: (h, i, 0))
    table = pl.BlockSpec((BLOCK, HEAD_DIM), lambda h, i: (i, 0))
    return pl.pallas_call(
        _rotate,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(HEADS, SEQ // BLOCK),
        in_specs=[heads, table, table],
        out_specs=heads,
    )(q, cosine, sine)


def reference_fn(q, cosine, sine):
    """The same in plain jax.numpy."""
    wide = q.astype(jnp.float32)
    turned = jnp.concatenate([-wide[..., HALF:], wide[..., :HALF]], axis=-1)
    return (wide * cosine + turned * sine).astype(q.dtype)


def generate_inputs(key):
    """Standard normal q; the tables of positions 0 to SEQ, each half of a row the same."""
    frequency = BASE ** (-jnp.arange(HALF, dtype=jnp.float32) / HALF)
    angle = jnp.tile(jnp.arange(SEQ, dtype=jnp.float32)[:, None] * frequency, (1, 2))
    return jax.random.normal(key, (HEADS, SEQ, HEAD_DIM), jnp.bfloat16), jnp.cos(angle), jnp.sin(angle)


def compute_flops():
    """Useful FLOPs: two products and a sum per element."""
    return 3 * HEADS * SEQ * HEAD_DIM


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    block, table, array = BLOCK * HEAD_DIM * 2, SEQ * HEAD_DIM * 4, HEADS * SEQ * HEAD_DIM * 2
    return {
        "grid": [HEADS, SEQ // BLOCK],
        "buffers": [
            {"name": "q", "size_bytes": block, "double_buffered": True},
            {"name": "cosine", "size_bytes": BLOCK * HEAD_DIM * 4, "double_buffered": True},
            {"name": "sine", "size_bytes": BLOCK * HEAD_DIM * 4, "double_buffered": True},
            {"name": "o", "size_bytes": block, "double_buffered": True},
        ],
        "inputs": [
            {"name": "q", "size_bytes": array, "re_reads": 1},
            {"name": "cosine", "size_bytes": table, "re_reads": HEADS},
            {"name": "sine", "size_bytes": table, "re_reads": HEADS},
        ],
        "outputs": [{"name": "o", "size_bytes": array, "re_reads": 1}],
        "vreg_estimate_bytes": 4 * BLOCK * HEAD_DIM * 4,
    }
