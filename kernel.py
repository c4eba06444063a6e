"""Causal flash attention for one head on TPU v5e. This is the file that you edit.

q, k, v: bfloat16[16384, 128]; the result is softmax(q k^T / sqrt(128), causal) v, bfloat16[16384, 128].

The grid walks query blocks. k and v come to VMEM once, in pieces that arrive while earlier query blocks are computed.
A query block first attends the keys of its own rows (the diagonal of the matrix of scores), then those before it. For
its rows the running maximum m, the running sum l and the unnormalised output acc are kept in VMEM scratch (the online
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

LANES = 128
VMEM_LIMIT_BYTES = 100 << 20  # of 128 MiB; the default of 16 MiB would not hold k and v
LOG2E = 1.4426950408889634

BQ = 4096
BKV = 2048
STRIP = 256
ROWS = 512
PIECE = 1024


def _sum_lanewise(p):
    """(rows, n * LANES) -> (rows, LANES): adds whole vector registers; the sum across lanes waits for the end."""
    return sum(p[:, start : start + LANES] for start in range(0, p.shape[1], LANES))


def _attention_block(
    q_ref, k_hbm, v_hbm, o_hbm, k_ref, v_ref, o_ref, arrived, left, q_scaled_ref, m_ref, l_ref, acc_ref
):
    """All of one query block: the diagonal under a mask, the keys before it without one, then the division."""
    i = pl.program_id(0)

    def fetch(block):
        """The copies of the keys and values that query block ``block`` attends first."""
        rows = pl.ds(pl.multiple_of(block * BQ, BQ), BQ)
        return (
            pltpu.make_async_copy(k_hbm.at[rows], k_ref.at[rows], arrived.at[0, block]),
            pltpu.make_async_copy(v_hbm.at[rows], v_ref.at[rows], arrived.at[1, block]),
        )

    def write(piece):
        """The copy of one piece of the output."""
        rows = pl.ds(pl.multiple_of(piece * PIECE, PIECE), PIECE)
        return pltpu.make_async_copy(o_ref.at[rows], o_hbm.at[rows], left.at[piece])

    @pl.when(i == 0)
    def _start_all_copies():
        for block in range(SEQ // BQ):
            for copy in fetch(block):
                copy.start()

    for copy in fetch(i):
        copy.wait()
    q_scaled_ref[...] = (q_ref[...].astype(jnp.float32) * (LOG2E * HEAD_DIM**-0.5)).astype(q_ref.dtype)

    def attend(rows, start, width, *, on_diagonal):
        """Let ``rows`` of this query block attend ``width`` keys from ``start``.

        On the diagonal the first of the rows is the row of the first key; the first keys of all begin m, l and acc.
        """
        keys = pl.ds(pl.multiple_of(start, LANES), width)
        scores = jax.lax.dot_general(
            q_scaled_ref[rows, :], k_ref[keys, :], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        if on_diagonal:
            query = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
            key = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
            scores = jnp.where(key <= query, scores, -jnp.inf)
        is_first = on_diagonal and rows.start == 0
        m_new = jnp.tile(jnp.max(scores, axis=1, keepdims=True), (1, LANES))
        if not is_first:
            m_new = jnp.maximum(m_ref[rows, :], m_new)
        p = jnp.exp2(scores - jnp.tile(m_new, (1, width // LANES)))
        l_new = _sum_lanewise(p)
        acc_new = jnp.dot(p.astype(v_ref.dtype), v_ref[keys, :], preferred_element_type=jnp.float32)
        if not is_first:
            rescale = jnp.exp2(m_ref[rows, :] - m_new)
            l_new += rescale * l_ref[rows, :]
            acc_new += rescale * acc_ref[rows, :]
        m_ref[rows, :], l_ref[rows, :], acc_ref[rows, :] = m_new, l_new, acc_new

    # Each strip of the block's own keys is attended by the queries from its own first row on.
    for start in range(0, BQ, STRIP):
        attend(slice(start, BQ), i * BQ + start, STRIP, on_diagonal=True)

    @pl.loop(0, i)
    def _before_the_diagonal(j):
        for first in range(0, BQ, BKV):
            for row in range(0, BQ, ROWS):
                attend(slice(row, row + ROWS), j * BQ + first, BKV, on_diagonal=False)

    for start in range(0, BQ, PIECE):
        done = slice(start, start + PIECE)
        out = acc_ref[done, :] / jnp.sum(l_ref[done, :], axis=1, keepdims=True)
        o_ref[pl.ds(pl.multiple_of(i * BQ + start, PIECE), PIECE), :] = out.astype(o_ref.dtype)
        write(i * (BQ // PIECE) + start // PIECE).start()

    @pl.when(i == pl.num_programs(0) - 1)
    def _wait_for_all_writes():
        for piece in range(SEQ // PIECE):
            write(piece).wait()


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
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((SEQ, HEAD_DIM), jnp.bfloat16),
            pltpu.VMEM((SEQ, HEAD_DIM), jnp.bfloat16),
            pltpu.VMEM((SEQ, HEAD_DIM), jnp.bfloat16),
            pltpu.SemaphoreType.DMA((2, SEQ // BQ)),
            pltpu.SemaphoreType.DMA((SEQ // PIECE,)),
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
            {"name": "o", "size_bytes": SEQ * row_bytes, "double_buffered": False},
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
