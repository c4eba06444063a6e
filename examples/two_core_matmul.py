"""Matrix product with a long contraction on both TensorCores of a v5p: x bfloat16[256, 32768], y bfloat16[32768, 256].

Blocks of both arrays come to each core in a pipeline of its own. HBM bounds it, if each core reads no more than half of
both arrays: each core has half of the bandwidth. Here each has half of the rows of the result, so both read all of y.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "two_core_matmul"
PROBLEM_DESCRIPTION = "matrix product of bfloat16[256, 32768] and bfloat16[32768, 256] as float32"

M, N, K = 256, 256, 32768

BM, BN = 128, 256
BK = 2048


def _add(x_ref, y_ref, o_ref):
    @pl.when(pl.program_id(2) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)

    o_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)


def _multiply(x_hbm, y_hbm, o_hbm):
    pltpu.emit_pipeline(
        _add,
        grid=(M // BM, N // BN, K // BK),
        in_specs=[
            pl.BlockSpec((BM, BK), lambda i, j, k: (i, k)),
            pl.BlockSpec((BK, BN), lambda i, j, k: (k, j)),
        ],
        out_specs=[pl.BlockSpec((BM, BN), lambda i, j, k: (i, j))],
        core_axis_name="core",
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY, pltpu.ARBITRARY),
    )(x_hbm, y_hbm, o_hbm)


def kernel_fn(x, y):
    """x bfloat16[M, K], y bfloat16[K, N] -> float32[M, N]."""
    mesh = pltpu.create_tensorcore_mesh("core")
    return pl.kernel(_multiply, out_type=jax.ShapeDtypeStruct((M, N), jnp.float32), mesh=mesh)(x, y)


def reference_fn(x, y):
    """The same in plain jax.numpy."""
    return jnp.dot(x, y, preferred_element_type=jnp.float32)


def generate_inputs(key):
    """Standard normal x and y."""
    x, y = jax.random.split(key)
    return jax.random.normal(x, (M, K), jnp.bfloat16), jax.random.normal(y, (K, N), jnp.bfloat16)


def compute_flops():
    """Useful FLOPs: one product and one sum for each pair of elements that meet."""
    return 2 * M * N * K


def get_tiling_meta():
    """What the author believes about buffers and traffic; the pipelines are the kernel's own."""
    return {
        "grid": [1],
        "buffers": [
            {"name": "x", "size_bytes": BM * BK * 2, "double_buffered": True},
            {"name": "y", "size_bytes": BK * BN * 2, "double_buffered": True},
            {"name": "o", "size_bytes": BM * BN * 4, "double_buffered": True},
        ],
        "inputs": [
            {"name": "x", "size_bytes": M * K * 2, "re_reads": N // BN},
            {"name": "y", "size_bytes": K * N * 2, "re_reads": M // BM},
        ],
        "outputs": [{"name": "o", "size_bytes": M * N * 4, "re_reads": 1}],
        "vreg_estimate_bytes": BM * BN * 4,
    }
