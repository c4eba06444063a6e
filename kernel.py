"""Causal flash attention for one head on TPU v5e. This is the file that you edit.

q, k, v: bfloat16[16384, 128]; the result is softmax(q k^T / sqrt(128), causal) v, bfloat16[16384, 128].

The grid walks query blocks. k and v come to VMEM once, a block of rows ahead of the queries that need it. A query block
first attends the keys of its own rows (the diagonal of the matrix of scores), then those before it. For its rows the
running maximum m, the running sum l and the unnormalised output acc are kept in VMEM scratch (the online softmax of
FlashAttention), so no row of scores is ever held whole.

Work is cut into tasks: a tile of rows and a chunk of keys. A task passes three stages, the product with q, softmax and
the product with v, and the stages work on different tasks at the same time: the source has the operations in the order
in which they shall be issued, for the compiler keeps the order of products.
"""


import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_flash_attention"
PROBLEM_DESCRIPTION = "causal attention forward, 1 head, q k v of bfloat16[16384, 128]"

SEQ = 16384
HEAD_DIM = 128

BQ = 2048  # rows of q in one grid step
BKV = 512  # rows of k and v in one turn
SUB = 128  # rows that go through a stage together: a tile
FIRST = 3  # tiles by which the product with q is ahead of the product with v
SECOND = 3  # tiles by which the softmax is ahead of it
SCALE = HEAD_DIM**-0.5 * 1.4426950408889634  # scores are kept in units of log 2


def _products(q, k):
    """q k^T in float32."""
    return jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def _attention_block(q_ref, k_hbm, v_hbm, o_ref, k_ref, v_ref, sems, qs_ref, s_ref, p_ref, a_ref, m_ref, l_ref, acc_ref):
    """One block of queries: the diagonal first, then the key blocks before it.

    A tile of rows passes three stages for each chunk of keys: product with q, softmax, product with v. The stages work
    on different tiles at the same time, each a few tiles ahead of the next.
    """
    i = pl.program_id(0)
    tiles = BQ // SUB
    turns = BQ // BKV

    def copies(block):
        rows = pl.ds(block * BQ, BQ)
        return (
            pltpu.make_async_copy(k_hbm.at[rows], k_ref.at[rows], sems.at[0]),
            pltpu.make_async_copy(v_hbm.at[rows], v_ref.at[rows], sems.at[1]),
        )

    @pl.when(i == 0)
    def _first():
        for copy in copies(0):
            copy.start()

    for copy in copies(i):
        copy.wait()

    @pl.when(i + 1 < pl.num_programs(0))
    def _ahead():
        for copy in copies(i + 1):
            copy.start()

    qs_ref[...] = (q_ref[...].astype(jnp.float32) * SCALE).astype(qs_ref.dtype)

    # A chunk is (index, None) before the diagonal block, and (index, d) for the d-th chunk in it.
    def width(chunk, r):
        return BKV if chunk[1] is None else min(BKV, (r + 1) * SUB - chunk[1] * BKV)

    def here(chunk, r):
        return pl.ds(pl.multiple_of(chunk[0] * BKV, BKV), width(chunk, r))

    def score(chunk, r):
        w = width(chunk, r)
        if w <= 0:
            return
        rows = slice(r * SUB, (r + 1) * SUB)
        scores = _products(qs_ref[rows, :], k_ref[here(chunk, r), :])
        if chunk[1] is not None and (r + 1) * SUB <= (chunk[1] + 1) * BKV:
            row = jax.lax.broadcasted_iota(jnp.int32, (SUB, SUB), 0)
            column = jax.lax.broadcasted_iota(jnp.int32, (SUB, SUB), 1)
            if w > SUB:
                s_ref[rows, : w - SUB] = scores[:, : w - SUB]
            s_ref[rows, w - SUB : w] = jnp.where(column <= row, scores[:, w - SUB :], -jnp.inf)
        else:
            s_ref[rows, :w] = scores

    def soften(chunk, r):
        w = width(chunk, r)
        if w <= 0:
            return
        rows = slice(r * SUB, (r + 1) * SUB)
        scores = s_ref[rows, :w]
        m_new = jnp.max(scores, axis=1, keepdims=True)
        if chunk[1] == 0:
            m_new = jnp.broadcast_to(m_new, (SUB, 128))
            total = jnp.zeros((SUB, 128), jnp.float32)
        else:
            m_old = m_ref[rows, :]
            m_new = jnp.maximum(m_old, m_new)
            rescale = jnp.exp2(m_old - m_new)
            a_ref[rows, :] = rescale
            total = rescale * l_ref[rows, :]
        m_ref[rows, :] = m_new
        for c in range(0, w, 128):
            part = jnp.exp2(scores[:, c : c + 128] - m_new)
            p_ref[rows, c : c + 128] = part.astype(v_ref.dtype)
            total = total + part
        l_ref[rows, :] = total

    def gather(chunk, r, last):
        w = width(chunk, r)
        if w <= 0:
            return
        rows = slice(r * SUB, (r + 1) * SUB)
        part = jnp.dot(p_ref[rows, :w], v_ref[here(chunk, r), :], preferred_element_type=jnp.float32)
        if chunk[1] != 0:
            part = a_ref[rows, :] * acc_ref[rows, :] + part
        if last:
            o_ref[rows, :] = (part / jnp.sum(l_ref[rows, :], axis=1, keepdims=True)).astype(o_ref.dtype)
        else:
            acc_ref[rows, :] = part

    def tasks(chunk):
        return [(chunk, r) for r in range(tiles) if width(chunk, r) > 0]

    def start(work):
        for task in work[:FIRST]:
            score(*task)
        for task in work[:SECOND]:
            soften(*task)

    def run(work, after, last=False):
        """The products with v of `work`, and what `after` needs to go on."""
        ahead = work + after
        for t in range(len(work)):
            if t + FIRST < len(ahead) and t + FIRST < len(work) + FIRST:
                score(*ahead[t + FIRST])
            if t + SECOND < len(ahead):
                soften(*ahead[t + SECOND])
            (chunk, r) = work[t]
            gather(chunk, r, last and t >= len(work) - tiles if chunk[1] is None else last and (r + 1) * SUB <= (chunk[1] + 1) * BKV)

    diagonal = [task for d in range(turns) for task in tasks((i * turns + d, d))]

    @pl.when(i == 0)
    def _top():
        start(diagonal)
        run(diagonal, [], last=True)

    @pl.when(i > 0)
    def _others():
        start(diagonal)
        run(diagonal, tasks((0, None)))

        def several(t):
            return [task for u in range(turns) for task in tasks((t * turns + u, None))]

        def turn(t, _):
            run(several(2 * t) + several(2 * t + 1), tasks(((2 * t + 2) * turns, None)))
            return 0

        jax.lax.fori_loop(0, (i - 1) // 2, turn, 0)

        @pl.when(i % 2 == 0)
        def _two_left():
            run(several(i - 2) + several(i - 1), [], last=True)

        @pl.when(i % 2 == 1)
        def _one_left():
            run(several(i - 1), [], last=True)


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
            pltpu.VMEM((SEQ, HEAD_DIM), q.dtype),
            pltpu.VMEM((SEQ, HEAD_DIM), q.dtype),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.VMEM((BQ, HEAD_DIM), q.dtype),
            pltpu.VMEM((BQ, BKV), jnp.float32),
            pltpu.VMEM((BQ, BKV), q.dtype),
            pltpu.VMEM((BQ, 128), jnp.float32),
            pltpu.VMEM((BQ, 128), jnp.float32),
            pltpu.VMEM((BQ, 128), jnp.float32),
            pltpu.VMEM((BQ, HEAD_DIM), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary",), vmem_limit_bytes=110 * 1024 * 1024
        ),
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
    return {
        "grid": [SEQ // BQ],
        "buffers": [
            {"name": "q", "size_bytes": BQ * row_bytes, "double_buffered": True},
            {"name": "o", "size_bytes": BQ * row_bytes, "double_buffered": True},
            {"name": "k", "size_bytes": SEQ * row_bytes, "double_buffered": False},
            {"name": "v", "size_bytes": SEQ * row_bytes, "double_buffered": False},
            {"name": "qs", "size_bytes": BQ * row_bytes, "double_buffered": False},
            {"name": "s", "size_bytes": BQ * BKV * 4, "double_buffered": False},
            {"name": "p", "size_bytes": BQ * BKV * 2, "double_buffered": False},
            {"name": "a", "size_bytes": BQ * 512, "double_buffered": False},
            {"name": "m", "size_bytes": BQ * 512, "double_buffered": False},
            {"name": "l", "size_bytes": BQ * 512, "double_buffered": False},
            {"name": "acc", "size_bytes": BQ * HEAD_DIM * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "q", "size_bytes": SEQ * row_bytes, "re_reads": 1},
            {"name": "k", "size_bytes": SEQ * row_bytes, "re_reads": 1},
            {"name": "v", "size_bytes": SEQ * row_bytes, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": SEQ * row_bytes, "re_reads": 1}],
        "vreg_estimate_bytes": SUB * BKV * 4,
    }
