"""Causal flash attention for one head on TPU v5e. This is the file that you edit.

q, k, v: bfloat16[16384, 128]; the result is softmax(q k^T / sqrt(128), causal) v, bfloat16[16384, 128].

q, k and v come to VMEM once, in pieces that arrive while earlier blocks of queries are computed. A block of queries
first attends the keys of its own rows (the diagonal of the matrix of scores), then those before it. For its rows the
running maximum m, the running sum l and the unnormalised output acc are kept in VMEM scratch (the online softmax of
FlashAttention), so no row of scores is ever held whole.

Work is cut into tasks: a tile of rows and a chunk of keys. A task passes three stages, the product with q, softmax and
the product with v, and the stages work on different tasks at the same time: the source has the operations in the order
in which they shall be issued, for the compiler keeps the order of products. Where a stretch of straight code ends, the
matrix units drain; each stretch therefore begins with tasks of the next one.
"""

import itertools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_flash_attention"
PROBLEM_DESCRIPTION = "causal attention forward, 1 head, q k v of bfloat16[16384, 128]"

SEQ = 16384
HEAD_DIM = 128

BQ = 2048  # rows of q in a block
BKV = 512  # rows of k and v in a chunk
SUB = 128  # rows that go through a stage together: a tile
FIRST = 3  # tiles by which the product with q is ahead of the product with v
SECOND = 3  # tiles by which the softmax is ahead of it
PIECES = ((0, 1024), (1024, 1024))  # of the first block: row and rows that arrive together
LEAVE = 128  # rows of the last block that leave together
SCALE = HEAD_DIM**-0.5 * 1.4426950408889634  # scores are kept in units of log 2
BLOCKS, TILES, CHUNKS = SEQ // BQ, BQ // SUB, BQ // BKV


def _products(q, k):
    """q k^T in float32."""
    return jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def _attention(
    q_hbm,
    k_hbm,
    v_hbm,
    o_hbm,
    q_ref,
    k_ref,
    v_ref,
    o_ref,
    early,
    arrived,
    left,
    last_left,
    qs_ref,
    s_ref,
    p_ref,
    a_ref,
    m_ref,
    l_ref,
    inverse_ref,
    acc_ref,
):
    """All blocks of queries. A task is (block, chunk, d, tile); d is the chunk's place on the diagonal, or None."""

    def aligned(first, to):
        return first if isinstance(first, int) else pl.multiple_of(first, to)

    def fetch(first, rows, sems):
        """The copies of rows of q, k and v."""
        part = pl.ds(first, rows)
        every = ((q_hbm, q_ref), (k_hbm, k_ref), (v_hbm, v_ref))
        return [pltpu.make_async_copy(hbm.at[part], ref.at[part], sems.at[n]) for n, (hbm, ref) in enumerate(every)]

    def fetch_early(piece):
        return fetch(*PIECES[piece], early.at[piece])

    def fetch_block(block):
        return fetch(aligned(block * BQ, BQ), BQ, arrived.at[block])

    def write(first, rows, sem):
        part = pl.ds(first, rows)
        return pltpu.make_async_copy(o_ref.at[part], o_hbm.at[part], sem)

    def write_two(pair):
        return write(aligned(pair * (2 * BQ), 2 * BQ), 2 * BQ, left.at[pair])

    def write_last(piece):
        return write((BLOCKS - 1) * BQ + piece * LEAVE, LEAVE, last_left.at[piece])

    def start(copies):
        for copy in copies:
            copy.start()

    def wait(copies):
        for copy in copies:
            copy.wait()

    def width(task):
        _, _, d, r = task
        return BKV if d is None else min(BKV, (r + 1) * SUB - d * BKV)

    def keys(task):
        return pl.ds(aligned(task[1] * BKV, BKV), width(task))

    def rows_of(task):
        return slice(task[3] * SUB, (task[3] + 1) * SUB)

    def at_edge(task):
        """Whether the task is the last of its rows in the diagonal block: its last SUB keys are masked."""
        return task[2] is not None and (task[3] + 1) * SUB <= (task[2] + 1) * BKV

    def own(task):
        """The task's rows in q and o."""
        return pl.ds(aligned(task[0] * BQ + task[3] * SUB, SUB), SUB)

    def score(task):
        w, rows = width(task), rows_of(task)
        if task[2] == 0:
            qs_ref[rows, :] = (q_ref[own(task), :].astype(jnp.float32) * SCALE).astype(qs_ref.dtype)
        scores = _products(qs_ref[rows, :], k_ref[keys(task), :])
        if at_edge(task):
            row = jax.lax.broadcasted_iota(jnp.int32, (SUB, SUB), 0)
            column = jax.lax.broadcasted_iota(jnp.int32, (SUB, SUB), 1)
            if w > SUB:
                s_ref[rows, : w - SUB] = scores[:, : w - SUB]
            s_ref[rows, w - SUB : w] = jnp.where(column <= row, scores[:, w - SUB :], -jnp.inf)
        else:
            s_ref[rows, :w] = scores

    def soften(task, last=False):
        w, rows = width(task), rows_of(task)
        scores = s_ref[rows, :w]
        m_new = jnp.max(scores, axis=1, keepdims=True)
        if task[2] == 0:
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
        if last:
            total = jnp.sum(total, axis=1, keepdims=True)
            guess = pl.reciprocal(total, approx=True)
            inverse_ref[rows, :] = jnp.broadcast_to(guess, (SUB, 128))
        else:
            l_ref[rows, :] = total

    def gather(task, last):
        w, rows = width(task), rows_of(task)
        part = jnp.dot(p_ref[rows, :w], v_ref[keys(task), :], preferred_element_type=jnp.float32)
        if task[2] != 0:
            part = a_ref[rows, :] * acc_ref[rows, :] + part
        if last:
            o_ref[own(task), :] = (part * inverse_ref[rows, :]).astype(o_ref.dtype)
        else:
            acc_ref[rows, :] = part

    def diagonal(block, first=0, rows=BQ):
        """Tasks of a diagonal block, or of a piece of its rows, chunk after chunk; those at the edge between others.

        A chunk begins with FIRST whole tasks if it has as many: what stands before them has products to hide behind.
        """
        tasks = []
        for d in range(CHUNKS):
            mine = [(block, block * CHUNKS + d, d, r) for r in range(first // SUB, (first + rows) // SUB)]
            edge = [task for task in mine if width(task) > 0 and at_edge(task)]
            whole = [task for task in mine if width(task) > 0 and not at_edge(task)]
            tasks += whole[:FIRST]
            for pair in itertools.zip_longest(edge, whole[FIRST:]):
                tasks += [task for task in pair if task]
        return tasks

    def before(block, first, blocks):
        """Tasks of `blocks` whole blocks of keys from `first`."""
        return [(block, first * CHUNKS + c, None, r) for c in range(blocks * CHUNKS) for r in range(TILES)]

    def run(work, after, ending=(), here=None, leaving=None):
        """The products with v of `work`, and what the first tasks of `after` need to go on.

        `ending` has the places in `work` that are the last of their rows; `here` what is awaited before the product
        with q of a place in work and after; `leaving` what starts after so many products with v.
        """
        ahead = work + after
        for t in range(len(work)):
            if t + FIRST < len(work) + min(FIRST, len(after)):
                if here and t + FIRST in here:
                    wait(here[t + FIRST])
                score(ahead[t + FIRST])
            if t + SECOND < len(work) + min(SECOND, len(after)):
                soften(ahead[t + SECOND], t + SECOND in ending)
            gather(work[t], t in ending)
            if leaving and t + 1 in leaving:
                leaving[t + 1]()

    def ends(work):
        """Places of the last task of each tile, in the work of one block."""
        return set({task[3]: place for place, task in enumerate(work)}.values())

    # The first block of queries, piece after piece.
    for piece in range(len(PIECES)):
        start(fetch_early(piece))
    for block in range(1, BLOCKS):
        start(fetch_block(block))

    zero = [task for piece in range(len(PIECES)) for task in diagonal(0, *PIECES[piece])]
    here = {len(zero) - TILES: fetch_block(1)}  # early: nothing crosses a wait, and here tasks have products to spare
    for piece, (first, _) in enumerate(PIECES[1:], 1):
        place = min(n for n, task in enumerate(zero) if task[3] * SUB >= first)
        here[place] = fetch_early(piece)
    wait(fetch_early(0))
    for task in zero[:FIRST]:
        score(task)
    for place, task in enumerate(zero[:SECOND]):
        soften(task, place in ends(zero))
    run(zero, diagonal(1)[:FIRST], ends(zero), here)

    def finish(block, blocks):
        """Attend the last blocks of keys, and begin with the next block of queries."""
        wait(fetch_block(block + 1))
        work = before(block, block - blocks, blocks)
        run(work, diagonal(block + 1)[:FIRST], ends(work))

    @pl.loop(1, BLOCKS)
    def _block(i):
        run(diagonal(i), before(i, 0, 1)[:FIRST])

        @pl.loop(0, (i - 1) // 2)
        def _turn(t):
            run(before(i, 2 * t, 2), before(i, 2 * t + 2, 1)[:FIRST])

        @pl.when(i % 2 == 0)
        def _two_left():
            write_two(i // 2 - 1).start()
            finish(i, 2)

        @pl.when((i % 2 == 1) & (i < BLOCKS - 1))
        def _one_left():
            finish(i, 1)

    write_before = write((BLOCKS - 2) * BQ, BQ, left.at[BLOCKS // 2 - 1])
    write_before.start()
    work = before(BLOCKS - 1, BLOCKS - 2, 1)
    split = len(work) - TILES
    pieces = BQ // LEAVE
    leaving = {split + (piece + 1) * (LEAVE // SUB): write_last(piece).start for piece in range(pieces - 1)}
    run(work, [], ends(work), leaving=leaving)
    write_last(pieces - 1).start()
    for pair in range(BLOCKS // 2 - 1):
        write_two(pair).wait()
    write_before.wait()
    for piece in range(pieces):
        write_last(piece).wait()


def kernel_fn(q, k, v):
    """Attend: q, k, v bfloat16[SEQ, HEAD_DIM] -> bfloat16[SEQ, HEAD_DIM]."""
    whole, lanes = pltpu.VMEM((SEQ, HEAD_DIM), q.dtype), pltpu.VMEM((BQ, 128), jnp.float32)
    return pl.pallas_call(
        _attention,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * 3,
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            *[whole] * 4,
            pltpu.SemaphoreType.DMA((len(PIECES), 3)),
            pltpu.SemaphoreType.DMA((BLOCKS, 3)),
            pltpu.SemaphoreType.DMA((BLOCKS // 2,)),
            pltpu.SemaphoreType.DMA((BQ // LEAVE,)),
            pltpu.VMEM((BQ, HEAD_DIM), q.dtype),
            pltpu.VMEM((BQ, BKV), jnp.float32),
            pltpu.VMEM((BQ, BKV), q.dtype),
            *[lanes] * 4,
            pltpu.VMEM((BQ, HEAD_DIM), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=110 * 1024 * 1024),
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
    whole = {"size_bytes": SEQ * row_bytes, "double_buffered": False}
    statistics = {"size_bytes": BQ * 512, "double_buffered": False}
    return {
        "grid": [],
        "buffers": [
            *({"name": name, **whole} for name in ("q", "k", "v", "o")),
            {"name": "qs", "size_bytes": BQ * row_bytes, "double_buffered": False},
            {"name": "s", "size_bytes": BQ * BKV * 4, "double_buffered": False},
            {"name": "p", "size_bytes": BQ * BKV * 2, "double_buffered": False},
            *({"name": name, **statistics} for name in ("a", "m", "l", "inverse")),
            {"name": "acc", "size_bytes": BQ * HEAD_DIM * 4, "double_buffered": False},
        ],
        "inputs": [{"name": name, "size_bytes": SEQ * row_bytes, "re_reads": 1} for name in ("q", "k", "v")],
        "outputs": [{"name": "o", "size_bytes": SEQ * row_bytes, "re_reads": 1}],
        "vreg_estimate_bytes": SUB * BKV * 4,
    }
