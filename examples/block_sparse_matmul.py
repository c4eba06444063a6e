"""Product with block-sparse weights: x, w bfloat16[2048, 2048], mask int32[16, 16] -> bfloat16[2048, 2048].

A block of 128 x 128 weights whose mask is 0 counts as zero; four of sixteen in each column of blocks are kept. The MXUs
bound it if blocks that do not count are neither multiplied nor fetched. XLA makes a list of those that count for each
column, and the index maps follow it; where a list has ended, its last block stays and nothing is fetched. Mutation to
try next: all of x in VMEM.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "block_sparse_matmul"
PROBLEM_DESCRIPTION = "bfloat16[2048, 2048] times bfloat16[2048, 2048] of which a quarter of the 128 x 128 blocks count"

M = N = K = 2048
BLOCK = 128
ROWS, COLUMNS = K // BLOCK, N // BLOCK  # of blocks
KEPT = ROWS // 4

BM = 2048


def _lists(mask):
    """For each column the rows of its blocks, the last one repeated, int32[COLUMNS, ROWS]; how many, int32[COLUMNS]."""
    counts = jnp.sum(mask != 0, axis=0, dtype=jnp.int32)
    order = jnp.argsort(mask == 0, axis=0, stable=True).astype(jnp.int32)
    place = jnp.minimum(jnp.arange(ROWS)[:, None], jnp.maximum(counts - 1, 0))
    return jnp.take_along_axis(order, place, axis=0).T, counts


def _multiply(rows, counts, x_ref, w_ref, o_ref, acc_ref):
    j, k = pl.program_id(1), pl.program_id(2)

    @pl.when(k == 0)
    def _start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when(k < counts[j])
    def _add():
        acc_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)

    @pl.when(k == pl.num_programs(2) - 1)
    def _finish():
        o_ref[...] = acc_ref[...].astype(o_ref.dtype)


def kernel_fn(x, w, mask):
    """x bfloat16[M, K], w bfloat16[K, N], mask int32[ROWS, COLUMNS] -> bfloat16[M, N]."""
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((M, N), x.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(M // BM, COLUMNS, ROWS),
            in_specs=[
                pl.BlockSpec((BM, BLOCK), lambda i, j, k, rows, counts: (i, rows[j, k])),
                pl.BlockSpec((BLOCK, BLOCK), lambda i, j, k, rows, counts: (rows[j, k], j)),
            ],
            out_specs=pl.BlockSpec((BM, BLOCK), lambda i, j, k, rows, counts: (i, j)),
            scratch_shapes=[pltpu.VMEM((BM, BLOCK), jnp.float32)],
        ),
    )(*_lists(mask), x, w)


def reference_fn(x, w, mask):
    """The same in plain jax.numpy."""
    kept = jnp.repeat(jnp.repeat(mask, BLOCK, axis=0), BLOCK, axis=1)
    return jnp.dot(x, jnp.where(kept != 0, w, 0), preferred_element_type=jnp.float32).astype(x.dtype)


def generate_inputs(key):
    """Standard normal x and w; KEPT blocks anywhere in each column of blocks."""
    x, w, mask = jax.random.split(key, 3)
    order = jax.vmap(lambda column: jax.random.permutation(column, ROWS))(jax.random.split(mask, COLUMNS))
    return (
        jax.random.normal(x, (M, K), jnp.bfloat16),
        jax.random.normal(w, (K, N), jnp.bfloat16),
        (order.T < KEPT).astype(jnp.int32),
    )


def compute_flops():
    """Useful FLOPs: the blocks that count."""
    return 2 * M * KEPT * BLOCK * N


def get_tiling_meta():
    """What the author believes about buffers and traffic: XLA moves x to VMEM as a whole."""
    return {
        "grid": [M // BM, COLUMNS, ROWS],
        "buffers": [
            {"name": "x", "size_bytes": BM * BLOCK * 2, "double_buffered": True},
            {"name": "w", "size_bytes": BLOCK * BLOCK * 2, "double_buffered": True},
            {"name": "o", "size_bytes": BM * BLOCK * 2, "double_buffered": True},
            {"name": "acc", "size_bytes": BM * BLOCK * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": M * K * 2, "re_reads": 1},
            {"name": "w", "size_bytes": KEPT * BLOCK * N * 2, "re_reads": M // BM},
        ],
        "outputs": [{"name": "o", "size_bytes": M * N * 2, "re_reads": 1}],
        "vreg_estimate_bytes": BM * BLOCK * 4,
    }
