"""Cumulative sum down the rows: x float32[16384, 256] -> float32[16384, 256].

One sum an element, so HBM bandwidth bounds it, if the sums do not wait for each other. A block is summed by doubling,
log2(BLOCK) shifted additions, and only its last row is carried. Mutation to try next: a product with a triangle of
ones.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "cumulative_sum"
PROBLEM_DESCRIPTION = "cumulative sum of float32[16384, 256] down its rows"

ROWS, WIDTH = 16384, 256

BLOCK = 256


def _add_up(x_ref, o_ref, carry_ref):
    @pl.when(pl.program_id(0) == 0)
    def _start():
        carry_ref[...] = jnp.zeros_like(carry_ref)

    total, row = x_ref[...], jax.lax.broadcasted_iota(jnp.int32, (BLOCK, WIDTH), 0)
    for shift in (1 << n for n in range(BLOCK.bit_length() - 1)):
        total += jnp.where(row >= shift, pltpu.roll(total, shift, 0), 0)
    total += carry_ref[...]
    o_ref[...] = total
    carry_ref[...] = total[BLOCK - 1 :]


def kernel_fn(x):
    """x float32[ROWS, WIDTH] -> float32[ROWS, WIDTH]."""
    rows = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0))
    return pl.pallas_call(
        _add_up,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(ROWS // BLOCK,),
        in_specs=[rows],
        out_specs=rows,
        scratch_shapes=[pltpu.VMEM((1, WIDTH), jnp.float32)],
    )(x)


def reference_fn(x):
    """The same in plain jax.numpy."""
    return jnp.cumsum(x, axis=0)


def generate_inputs(key):
    """Standard normal x."""
    return (jax.random.normal(key, (ROWS, WIDTH), jnp.float32),)


def compute_flops():
    """Useful FLOPs: one sum per element."""
    return ROWS * WIDTH


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    block, array = BLOCK * WIDTH * 4, ROWS * WIDTH * 4
    return {
        "grid": [ROWS // BLOCK],
        "buffers": [
            {"name": "x", "size_bytes": block, "double_buffered": True},
            {"name": "o", "size_bytes": block, "double_buffered": True},
            {"name": "carry", "size_bytes": WIDTH * 4, "double_buffered": False},
        ],
        "inputs": [{"name": "x", "size_bytes": array, "re_reads": 1}],
        "outputs": [{"name": "o", "size_bytes": array, "re_reads": 1}],
        "vreg_estimate_bytes": WIDTH * 4,
    }
