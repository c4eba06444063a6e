"""Product with int4 weights: x bfloat16[64, 4096], w int4[4096, 8192], scale float32[32, 8192] -> bfloat16[64, 8192].

A weight is its integer times the scale of its group of 128 rows, as weights of a language model are kept for decoding.
With 64 rows of x the weights' bytes bound it, if turning them into bfloat16 keeps up with HBM: that is the work of the
vector units. This start fetches x again for each block of columns. First mutation to try: all of x in VMEM and whole
columns of w in a step.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "int4_matmul"
PROBLEM_DESCRIPTION = "bfloat16[64, 4096] times int4[4096, 8192] with a scale per group of 128 rows, bfloat16 out"

M, K, N = 64, 4096, 8192
GROUP = 128

BK, BN = 1024, 256


def _multiply(x_ref, w_ref, scale_ref, o_ref, acc_ref):
    k = pl.program_id(1)

    @pl.when(k == 0)
    def _start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    weights = w_ref[...].astype(jnp.float32).reshape(BK // GROUP, GROUP, BN) * scale_ref[...][:, None]
    acc_ref[...] += jnp.dot(
        x_ref[...], weights.reshape(BK, BN).astype(jnp.bfloat16), preferred_element_type=jnp.float32
    )

    @pl.when(k == pl.num_programs(1) - 1)
    def _finish():
        o_ref[...] = acc_ref[...].astype(o_ref.dtype)


def kernel_fn(x, w, scale):
    """x bfloat16[M, K], w int4[K, N], scale float32[K / GROUP, N] -> bfloat16[M, N]."""
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((M, N), x.dtype),
        grid=(N // BN, K // BK),
        in_specs=[
            pl.BlockSpec((M, BK), lambda j, k: (0, k)),
            pl.BlockSpec((BK, BN), lambda j, k: (k, j)),
            pl.BlockSpec((BK // GROUP, BN), lambda j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((M, BN), lambda j, k: (0, j)),
        scratch_shapes=[pltpu.VMEM((M, BN), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
    )(x, w, scale)


def reference_fn(x, w, scale):
    """The same in plain jax.numpy: weights rounded to bfloat16 before the product."""
    weights = (w.astype(jnp.float32).reshape(K // GROUP, GROUP, N) * scale[:, None]).reshape(K, N)
    return jnp.dot(x, weights.astype(x.dtype), preferred_element_type=jnp.float32).astype(x.dtype)


def generate_inputs(key):
    """Standard normal x, uniform integers, scales between 0.5 and 1.5 by which a weight is about 1."""
    x, w, scale = jax.random.split(key, 3)
    return (
        jax.random.normal(x, (M, K), jnp.bfloat16),
        jax.random.randint(w, (K, N), -8, 8, jnp.int8).astype(jnp.int4),
        jax.random.uniform(scale, (K // GROUP, N), jnp.float32, 0.5, 1.5) / 4,
    )


def compute_flops():
    """Useful FLOPs: the product, and one scaling per weight."""
    return 2 * M * N * K + K * N


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    return {
        "grid": [N // BN, K // BK],
        "buffers": [
            {"name": "x", "size_bytes": M * BK * 2, "double_buffered": True},
            {"name": "w", "size_bytes": BK * BN // 2, "double_buffered": True},
            {"name": "scale", "size_bytes": BK // GROUP * BN * 4, "double_buffered": True},
            {"name": "o", "size_bytes": M * BN * 2, "double_buffered": True},
            {"name": "acc", "size_bytes": M * BN * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": M * K * 2, "re_reads": N // BN},
            {"name": "w", "size_bytes": K * N // 2, "re_reads": 1},
            {"name": "scale", "size_bytes": K // GROUP * N * 4, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": M * N * 2, "re_reads": 1}],
        "vreg_estimate_bytes": BK * BN * 4,
    }
