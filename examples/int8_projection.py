"""Llama-3 8B's output projection of 4096 tokens in int8: int8[4096, 4096] matrices with scales -> bfloat16[4096, 4096].

The products are exact in int32, at twice the bfloat16 rate of the MXUs, which bound it: whole rows and columns are
multiplied at once, so that nothing is accumulated in VMEM. Mutation to try next: y in pieces at the start.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "int8_projection"
PROBLEM_DESCRIPTION = "product of int8[4096, 4096] and int8[4096, 4096] with scales per row and column, bfloat16 out"

M = N = K = 4096

BM, BN = 512, 1024


def _multiply(x_ref, y_ref, row_ref, column_ref, o_ref):
    product = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.int32)
    o_ref[...] = (product.astype(jnp.float32) * row_ref[...] * column_ref[...]).astype(o_ref.dtype)


def kernel_fn(x, y, row, column):
    """x int8[M, K], y int8[K, N], row float32[M, 1], column float32[1, N] -> bfloat16[M, N]."""
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((M, N), jnp.bfloat16),
        grid=(M // BM, N // BN),
        in_specs=[
            pl.BlockSpec((BM, K), lambda i, j: (i, 0)),
            pl.BlockSpec((K, BN), lambda i, j: (0, j)),
            pl.BlockSpec((BM, 1), lambda i, j: (i, 0)),
            pl.BlockSpec((1, BN), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel"), vmem_limit_bytes=100 << 20),
    )(x, y, row, column)


def reference_fn(x, y, row, column):
    """The same in plain jax.numpy."""
    product = jnp.dot(x, y, preferred_element_type=jnp.int32)
    return (product.astype(jnp.float32) * row * column).astype(jnp.bfloat16)


def generate_inputs(key):
    """Uniform integers; scales between 0.5 and 1.5, by which the result is about 50."""
    x, y, row, column = jax.random.split(key, 4)
    return (
        jax.random.randint(x, (M, K), -127, 128, jnp.int8),
        jax.random.randint(y, (K, N), -127, 128, jnp.int8),
        jax.random.uniform(row, (M, 1), jnp.float32, 0.5, 1.5) / 127,
        jax.random.uniform(column, (1, N), jnp.float32, 0.5, 1.5) / 127,
    )


def compute_flops():
    """Useful operations: one product and one sum for each pair of elements that meet, two scalings per result."""
    return 2 * M * N * K + 2 * M * N


def get_tiling_meta():
    """What the author believes about buffers and traffic: XLA keeps the scales of the rows in VMEM."""
    lanes = 128 * 4  # a (rows, 1) float32 buffer occupies a whole lane tile per row
    return {
        "grid": [M // BM, N // BN],
        "buffers": [
            {"name": "x", "size_bytes": BM * K, "double_buffered": True},
            {"name": "y", "size_bytes": K * BN, "double_buffered": True},
            {"name": "column", "size_bytes": BN * 4, "double_buffered": True},
            {"name": "o", "size_bytes": BM * BN * 2, "double_buffered": True},
        ],
        "inputs": [
            {"name": "x", "size_bytes": M * K, "re_reads": 1},
            {"name": "y", "size_bytes": K * N, "re_reads": M // BM},
            {"name": "row", "size_bytes": M * lanes, "re_reads": 1},
            {"name": "column", "size_bytes": N * 4, "re_reads": M // BM},
        ],
        "outputs": [{"name": "o", "size_bytes": M * N * 2, "re_reads": 1}],
        "vreg_estimate_bytes": BM * BN * 4,
    }
