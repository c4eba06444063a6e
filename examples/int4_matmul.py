"""Product with int4 weights: x bfloat16[64, 4096], w int4[4096, 8192], scale float32[32, 8192] -> bfloat16[64, 8192].

A weight is its integer times the scale of its group of 128 rows, as weights of a language model are kept for decoding.
With 64 rows of x the weights' bytes bound it, if turning them into bfloat16 keeps up with HBM: that is the work of the
vector units. All of x stays in VMEM. Mutation to try next: the product of a group scaled, not its weights.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "int4_matmul"
PROBLEM_DESCRIPTION = "bfloat16[64, 4096] times int4[4096, 8192] with a scale per group of 128 rows, bfloat16 out"

M, K, N = 64, 4096, 8192
GROUP = 128

BN = 512


def _multiply(x_ref, w_ref, scale_ref, o_ref):
    weights = w_ref[...].astype(jnp.float32).reshape(K // GROUP, GROUP, BN) * scale_ref[...][:, None]
    product = jnp.dot(x_ref[...], weights.reshape(K, BN).astype(jnp.bfloat16), preferred_element_type=jnp.float32)
    o_ref[...] = product.astype(o_ref.dtype)


def kernel_fn(x, w, scale):
    """x bfloat16[M, K], w int4[K, N], scale float32[K / GROUP, N] -> bfloat16[M, N]."""
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((M, N), x.dtype),
        grid=(N // BN,),
        in_specs=[
            pl.BlockSpec((M, K), lambda j: (0, 0)),
            pl.BlockSpec((K, BN), lambda j: (0, j)),
            pl.BlockSpec((K // GROUP, BN), lambda j: (0, j)),
        ],
        out_specs=pl.BlockSpec((M, BN), lambda j: (0, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
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
        "grid": [N // BN],
        "buffers": [
            {"name": "x", "size_bytes": M * K * 2, "double_buffered": False},
            {"name": "w", "size_bytes": K * BN // 2, "double_buffered": True},
            {"name": "scale", "size_bytes": K // GROUP * BN * 4, "double_buffered": True},
            {"name": "o", "size_bytes": M * BN * 2, "double_buffered": True},
        ],
        "inputs": [
            {"name": "x", "size_bytes": M * K * 2, "re_reads": 1},
            {"name": "w", "size_bytes": K * N // 2, "re_reads": 1},
            {"name": "scale", "size_bytes": K // GROUP * N * 4, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": M * N * 2, "re_reads": 1}],
        "vreg_estimate_bytes": K * BN * 4,
    }
