"""Causal flash attention for one head on TPU v5e. This is the file that you edit.

q, k, v: bfloat16[16384, 128]; the result is softmax(q k^T / sqrt(128), causal) v, bfloat16[16384, 128].

The grid walks query blocks; k and v come to VMEM once, in
pieces that arrive while earlier query blocks are computed, and a loop walks their blocks. For each query block the
kernel keeps the running row maximum m, the row sum l and the unnormalised output acc in VMEM scratch (the
online softmax of FlashAttention), so no row of scores is ever held whole.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_flash_attention"
PROBLEM_DESCRIPTION = "causal attention forward, 1 head, q k v of bfloat16[16384, 128]"

SEQ = 16384
HEAD_DIM = 128

LANES = 128
VMEM_LIMIT_BYTES = 100 << 20  # of 128 MiB; the default of 16 MiB would not hold k and v
LOG2E = 1.4426950408889634

BQ = 4096
BKV = 2048
STRIP = 256
ROWS = 512


def _sum_lanewise(p):
    """(rows, n * LANES) -> (rows, LANES): adds whole vector registers; the sum across lanes waits for the end."""
    return sum(p[:, start : start + LANES] for start in range(0, p.shape[1], LANES))


def _attention_block(q_ref, k_hbm, v_hbm, o_ref, k_ref, v_ref, arrived, q_scaled_ref, m_ref, l_ref, acc_ref):
    """All of one query block: key blocks before the diagonal without a mask, then the diagonal block."""
    i = pl.program_id(0)

    def fetch(block):
        """The copies of the keys and values that query block ``block`` attends first."""
        rows = pl.ds(pl.multiple_of(block * BQ, BQ), BQ)
        return (
            pltpu.make_async_copy(k_hbm.at[rows], k_ref.at[rows], arrived.at[0, block]),
            pltpu.make_async_copy(v_hbm.at[rows], v_ref.at[rows], arrived.at[1, block]),
        )

    @pl.when(i == 0)
    def _start_all_copies():
        for block in range(SEQ // BQ):
            for copy in fetch(block):
                copy.start()

    for copy in fetch(i):
        copy.wait()
    q_scaled_ref[...] = (q_ref[...].astype(jnp.float32) * (LOG2E * HEAD_DIM**-0.5)).astype(q_ref.dtype)
    m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
    l_ref[...] = jnp.zeros_like(l_ref)
    acc_ref[...] = jnp.zeros_like(acc_ref)

    def accumulate(rows, start, width, masked):
        """Attend ``rows`` of this query block to ``width`` keys from ``start``; the mask assumes that both begin equal."""
        keys = pl.ds(pl.multiple_of(start, LANES), width)
        scores = jax.lax.dot_general(
            q_scaled_ref[rows, :], k_ref[keys, :], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        if masked:
            query = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
            key = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
            scores = jnp.where(key <= query, scores, -jnp.inf)
        m_old = m_ref[rows, :]
        m_new = jnp.maximum(m_old, jnp.max(scores, axis=1, keepdims=True))
        p = jnp.exp2(scores - jnp.tile(m_new, (1, width // LANES)))
        rescale = jnp.exp2(m_old - m_new)
        l_ref[rows, :] = rescale * l_ref[rows, :] + _sum_lanewise(p)
        acc_ref[rows, :] = rescale * acc_ref[rows, :] + jnp.dot(
            p.astype(v_ref.dtype), v_ref[keys, :], preferred_element_type=jnp.float32
        )
        m_ref[rows, :] = m_new

    @pl.loop(0, i)
    def _before_the_diagonal(j):
        for first in range(0, BQ, BKV):
            for row in range(0, BQ, ROWS):
                accumulate(slice(row, row + ROWS), j * BQ + first, BKV, masked=False)

    # On the diagonal, each strip of keys is attended by the queries from its own first row on.
    for start in range(0, BQ, STRIP):
        accumulate(slice(start, BQ), i * BQ + start, STRIP, masked=True)
    o_ref[...] = (acc_ref[...] / jnp.sum(l_ref[...], axis=1, keepdims=True)).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    """Attend: q, k, v bfloat16[SEQ, HEAD_DIM] -> bfloat16[SEQ, HEAD_DIM]."""
    return pl.pallas_call(
        _attention_block,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        grid=(SEQ // BQ,),
        in_specs=[
            pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i, 0)),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i, 0)),
        scratch_shapes=[
            pltpu.VMEM((SEQ, HEAD_DIM), jnp.bfloat16),
            pltpu.VMEM((SEQ, HEAD_DIM), jnp.bfloat16),
            pltpu.SemaphoreType.DMA((2, SEQ // BQ)),
            pltpu.VMEM((BQ, HEAD_DIM), jnp.bfloat16),
            pltpu.VMEM((BQ, LANES), jnp.float32),
            pltpu.VMEM((BQ, LANES), jnp.float32),
            pltpu.VMEM((BQ, HEAD_DIM), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_LIMIT_BYTES),
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
    lanes = LANES * 4
    return {
        "grid": [SEQ // BQ],
        "buffers": [
            {"name": "q", "size_bytes": BQ * row_bytes, "double_buffered": True},
            {"name": "k", "size_bytes": SEQ * row_bytes, "double_buffered": False},
            {"name": "v", "size_bytes": SEQ * row_bytes, "double_buffered": False},
            {"name": "o", "size_bytes": BQ * row_bytes, "double_buffered": True},
            {"name": "q_scaled", "size_bytes": BQ * row_bytes, "double_buffered": False},
            {"name": "m", "size_bytes": BQ * lanes, "double_buffered": False},
            {"name": "l", "size_bytes": BQ * lanes, "double_buffered": False},
            {"name": "acc", "size_bytes": BQ * HEAD_DIM * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "q", "size_bytes": SEQ * row_bytes, "re_reads": 1},
            {"name": "k", "size_bytes": SEQ * row_bytes, "re_reads": 1},
            {"name": "v", "size_bytes": SEQ * row_bytes, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": SEQ * row_bytes, "re_reads": 1}],
        "vreg_estimate_bytes": BQ * BKV * 4,
    }
