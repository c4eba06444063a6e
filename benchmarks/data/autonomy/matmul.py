"""Matrix product: x, y bfloat16[2048, 2048] -> bfloat16[2048, 2048].

Every element takes part in 2048 products, so the MXUs bound it where blocks are large: x is read N / BN times and y M /
BM times, and each step adds a product to an accumulator in VMEM. With the small blocks of this start HBM and the
latency of its DMAs bound it instead. First mutation to try: larger blocks.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "matmul"
PROBLEM_DESCRIPTION = "matrix product of bfloat16[2048, 2048] and bfloat16[2048, 2048]"

M = N = K = 2048

BM = BN = BK = 256


def _multiply(x_ref, y_ref, o_ref, acc_ref):
    k = pl.program_id(2)

    @pl.when(k == 0)
    def _start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    acc_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    @pl.when(k == pl.num_programs(2) - 1)
    def _finish():
        o_ref[...] = acc_ref[...].astype(o_ref.dtype)


def kernel_fn(x, y):
    """x bfloat16[M, K], y bfloat16[K, N] -> bfloat16[M, N]."""
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((M, N), x.dtype),
        grid=(M // BM, N // BN, K // BK),
        in_specs=[
            pl.BlockSpec((BM, BK), lambda i, j, k: (i, k)),
            pl.BlockSpec((BK, BN), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((BM, BN), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
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
        "grid": [M // BM, N // BN, K // BK],
        "buffers": [
            {"name": "x", "size_bytes": BM * BK * 2, "double_buffered": True},
            {"name": "y", "size_bytes": BK * BN * 2, "double_buffered": True},
            {"name": "o", "size_bytes": BM * BN * 2, "double_buffered": True},
            {"name": "acc", "size_bytes": BM * BN * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": M * K * 2, "re_reads": N // BN},
            {"name": "y", "size_bytes": K * N * 2, "re_reads": M // BM},
        ],
        "outputs": [{"name": "o", "size_bytes": M * N * 2, "re_reads": 1}],
        "vreg_estimate_bytes": BM * BN * 4,
    }
