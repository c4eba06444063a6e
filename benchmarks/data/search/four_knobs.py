"""Causal flash attention for one head on TPU v5e: `examples/naive_attention.py` with four knobs.

As it is here, it does what the naive kernel does.

q, k, v: bfloat16[16384, 128]; the result is softmax(q k^T / sqrt(128), causal) v, bfloat16[16384, 128].

The grid walks query blocks (outer) and key blocks (inner). For each query block the kernel keeps the
running row maximum m, the row sum l and the unnormalised output acc in VMEM scratch (the online
softmax of FlashAttention), so no row of scores is ever held whole.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_flash_attention"
PROBLEM_DESCRIPTION = "causal attention forward, 1 head, q k v of bfloat16[16384, 128]"

SEQ = 16384
HEAD_DIM = 128

BQ = 128  # tune: 64, 128, 256, 512, 1024, 2048
BKV = 256  # tune: 128, 256, 512, 1024, 2048
PIECES = 1  # tune: 1, 2, 4
UNMASKED = False  # tune: False, True
# where: BKV // PIECES >= 128


def _attention_block(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
    """One (query block, key block) step of the online softmax."""
    i, j = pl.program_id(0), pl.program_id(1)

    @pl.when(j == 0)
    def _start():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    def accumulate(masked):
        rows_of_piece = BKV // PIECES
        for piece in range(PIECES):
            keys = pl.ds(piece * rows_of_piece, rows_of_piece)
            scores = jax.lax.dot_general(
                q_ref[...], k_ref[keys, :], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
            ) * (HEAD_DIM**-0.5)
            if masked:
                rows = i * BQ + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
                columns = j * BKV + piece * rows_of_piece + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
                scores = jnp.where(columns <= rows, scores, -jnp.inf)
            m_new = jnp.maximum(m_ref[...], jnp.max(scores, axis=1, keepdims=True))
            p = jnp.exp(scores - m_new)
            rescale = jnp.exp(m_ref[...] - m_new)
            l_ref[...] = rescale * l_ref[...] + jnp.sum(p, axis=1, keepdims=True)
            acc_ref[...] = rescale * acc_ref[...] + jnp.dot(
                p.astype(v_ref.dtype), v_ref[keys, :], preferred_element_type=jnp.float32
            )
            m_ref[...] = m_new

    # Key blocks that lie wholly after the last query of this block are not attended.
    attended = j * BKV < (i + 1) * BQ
    whole = (j + 1) * BKV <= i * BQ + 1  # every query of the block attends to every key of this one

    if UNMASKED:

        @pl.when(whole)
        def _accumulate_whole():
            accumulate(masked=False)

        @pl.when(attended & jnp.logical_not(whole))
        def _accumulate_part():
            accumulate(masked=True)

    else:

        @pl.when(attended)
        def _accumulate():
            accumulate(masked=True)

    @pl.when(j == pl.num_programs(1) - 1)
    def _finish():
        o_ref[...] = (acc_ref[...] / l_ref[...]).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    """Attend: q, k, v bfloat16[SEQ, HEAD_DIM] -> bfloat16[SEQ, HEAD_DIM]."""
    return pl.pallas_call(
        _attention_block,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        grid=(SEQ // BQ, SEQ // BKV),
        in_specs=[
            pl.BlockSpec((BQ, HEAD_DIM), lambda i, j: (i, 0)),
            pl.BlockSpec((BKV, HEAD_DIM), lambda i, j: (j, 0)),
            pl.BlockSpec((BKV, HEAD_DIM), lambda i, j: (j, 0)),
        ],
        out_specs=pl.BlockSpec((BQ, HEAD_DIM), lambda i, j: (i, 0)),
        scratch_shapes=[
            pltpu.VMEM((BQ, 1), jnp.float32),
            pltpu.VMEM((BQ, 1), jnp.float32),
            pltpu.VMEM((BQ, HEAD_DIM), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
    )(q, k, v)


def reference_fn(q, k, v):
    """The same in plain jax.numpy, in the problem's own dtypes."""
    scores = jnp.einsum("qd,kd->qk", q, k, preferred_element_type=jnp.float32) * (HEAD_DIM**-0.5)
    rows = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    columns = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    weights = jax.nn.softmax(jnp.where(columns <= rows, scores, -jnp.inf), axis=1)
    return jnp.einsum("qk,kd->qd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32).astype(q.dtype)


def generate_inputs(key):
    """Three standard normal bfloat16[SEQ, HEAD_DIM] arrays."""
    return tuple(jax.random.normal(part, (SEQ, HEAD_DIM), jnp.bfloat16) for part in jax.random.split(key, 3))


def compute_flops():
    """Useful FLOPs: two products over the lower triangle, diagonal included."""
    pairs = SEQ * (SEQ + 1) // 2
    return 2 * 2 * pairs * HEAD_DIM


def get_tiling_meta():
    """What the author believes about buffers and traffic; the judge sets it beside what the compiler says."""
    row_bytes = HEAD_DIM * 2
    lanes = 128 * 4  # a (rows, 1) f32 buffer occupies a whole lane tile per row
    kv_reads = SEQ // BQ
    return {
        "grid": [SEQ // BQ, SEQ // BKV],
        "buffers": [
            {"name": "q", "size_bytes": BQ * row_bytes, "double_buffered": True},
            {"name": "k", "size_bytes": BKV * row_bytes, "double_buffered": True},
            {"name": "v", "size_bytes": BKV * row_bytes, "double_buffered": True},
            {"name": "o", "size_bytes": BQ * row_bytes, "double_buffered": True},
            {"name": "m", "size_bytes": BQ * lanes, "double_buffered": False},
            {"name": "l", "size_bytes": BQ * lanes, "double_buffered": False},
            {"name": "acc", "size_bytes": BQ * HEAD_DIM * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "q", "size_bytes": SEQ * row_bytes, "re_reads": 1},
            {"name": "k", "size_bytes": SEQ * row_bytes, "re_reads": kv_reads},
            {"name": "v", "size_bytes": SEQ * row_bytes, "re_reads": kv_reads},
        ],
        "outputs": [{"name": "o", "size_bytes": SEQ * row_bytes, "re_reads": 1}],
        "vreg_estimate_bytes": BQ * BKV * 4,
    }
