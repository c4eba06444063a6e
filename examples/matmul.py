"""Matrix product: x, y bfloat16[2048, 2048] -> bfloat16[2048, 2048].

Every element takes part in 2048 products, so the MXUs bound it where blocks are large: a block of whole rows of x stays
while the columns of y pass by, M / BM times in all. Mutation to try next: all of y in VMEM.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "matmul"
PROBLEM_DESCRIPTION = "matrix product of bfloat16[2048, 2048] and bfloat16[2048, 2048]"

M = N = K = 2048

BM = BN = 512


def _multiply(x_ref, y_ref, o_ref):
    product = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = product.astype(o_ref.dtype)


def kernel_fn(x, y):
    """x bfloat16[M, K], y bfloat16[K, N] -> bfloat16[M, N]."""
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((M, N), x.dtype),
        grid=(M // BM, N // BN),
        in_specs=[
            pl.BlockSpec((BM, K), lambda i, j: (i, 0)),
            pl.BlockSpec((K, BN), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
    )(x, y)


def reference_fn(x, y):
    """The same in plain jax.numpy."""
    return jnp.dot(x, y, preferred_element_type=jnp.float32).astype(x.dtype)


def generate_inputs(key):
    """Standard normal x and y."""
    x, y = jax.random.split(key)
    return jax.random.normal(x, (M, K), jnp.bfloat16), jax.random.normal(y, (K, N), jnp.bfloat16)


def compute_flops():
    """Useful FLOPs: one product and one sum for each pair of elements that meet."""
    return 2 * M * N * K


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    return {
        "grid": [M // BM, N // BN],
        "buffers": [
            {"name": "x", "size_bytes": BM * K * 2, "double_buffered": True},
            {"name": "y", "size_bytes": K * BN * 2, "double_buffered": True},
            {"name": "o", "size_bytes": BM * BN * 2, "double_buffered": True},
        ],
        "inputs": [
            {"name": "x", "size_bytes": M * K * 2, "re_reads": 1},
            {"name": "y", "size_bytes": K * N * 2, "re_reads": M // BM},
        ],
        "outputs": [{"name": "o", "size_bytes": M * N * 2, "re_reads": 1}],
        "vreg_estimate_bytes": BM * BN * 4,
    }
