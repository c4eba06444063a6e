"""Matrix product with a long contraction on both TensorCores of a v5p: x bfloat16[256, 32768], y bfloat16[32768, 256].

HBM bounds it, if each core reads half of both arrays: each has half of the bandwidth. So each has half of the
contraction. Then it hands its sums of the other's rows over through HBM, and adds the other's to its own. Mutation to
try next: rows handed over while the last block is multiplied.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "two_core_matmul"
PROBLEM_DESCRIPTION = "matrix product of bfloat16[256, 32768] and bfloat16[32768, 256] as float32"

M, N, K = 256, 256, 32768

BK = 2048
HALF = M // 2


def _copied(source, target, moved):
    copy = pltpu.make_async_copy(source, target, moved)
    copy.start()
    copy.wait()


def _multiply(x_hbm, y_hbm, o_hbm, parts_hbm, total, other, moved, met):
    def add(x_ref, y_ref):
        total[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    total[...] = jnp.zeros_like(total)
    pltpu.emit_pipeline(
        add,
        grid=(K // BK,),
        in_specs=[pl.BlockSpec((M, BK), lambda k: (0, k)), pl.BlockSpec((BK, N), lambda k: (k, 0))],
        core_axis_name="core",
        dimension_semantics=(pltpu.PARALLEL,),
    )(x_hbm, y_hbm)
    me = jax.lax.axis_index("core")
    mine, others = pl.ds(me * HALF, HALF), pl.ds((1 - me) * HALF, HALF)
    _copied(total.at[others], parts_hbm.at[others], moved)
    pltpu.core_barrier(met, core_axis_name="core")
    _copied(parts_hbm.at[mine], other, moved)
    other[...] += total[mine]
    _copied(other, o_hbm.at[mine], moved)


def kernel_fn(x, y):
    """x bfloat16[M, K], y bfloat16[K, N] -> float32[M, N]."""
    sums = jax.ShapeDtypeStruct((M, N), jnp.float32)
    return pl.kernel(
        _multiply,
        out_type=(sums, sums),
        mesh=pltpu.create_tensorcore_mesh("core"),
        scratch_types=[
            pltpu.VMEM((M, N), jnp.float32),
            pltpu.VMEM((HALF, N), jnp.float32),
            pltpu.SemaphoreType.DMA,
            pltpu.SemaphoreType.REGULAR,
        ],
    )(x, y)[0]


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
            {"name": "x", "size_bytes": M * BK * 2, "double_buffered": True},
            {"name": "y", "size_bytes": BK * N * 2, "double_buffered": True},
            {"name": "total", "size_bytes": M * N * 4, "double_buffered": False},
            {"name": "other", "size_bytes": HALF * N * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": M * K * 2, "re_reads": 1},
            {"name": "y", "size_bytes": K * N * 2, "re_reads": 1},
            {"name": "parts", "size_bytes": M * N * 4, "re_reads": 1},
        ],
        "outputs": [
            {"name": "o", "size_bytes": M * N * 4, "re_reads": 1},
            {"name": "parts", "size_bytes": M * N * 4, "re_reads": 1},
        ],
        "vreg_estimate_bytes": M * N * 4,
    }
