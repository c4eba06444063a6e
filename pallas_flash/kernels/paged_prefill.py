"""Chunked prefill against a cache in pages: the last queries of every sequence, grouped heads, any lengths.

q: bfloat16[BATCH, HEADS, CHUNK, DIM]; k, v: [KV_HEADS, POOL, PAGE, DIM] of bfloat16, int8 or float8, the chunk's own
keys among them; lengths: int32[BATCH], keys of each sequence; table: int32[BATCH, PAGES]. The matrix units bound it.

One grid step holds some queries of all heads of a key head, and walks the keys that they attend in blocks of a few
pages, fetched ahead across the ends of steps. A tile of queries and a block is a task: its product with q is made
while another one is in its softmax, and the product with v comes behind it. Blocks that all queries attend whole have
no mask. The compiler's checks of every copy's bounds would take 5 % of the time; pages are clamped to the pool instead.
"""

import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LANES = 128
LOG2E = 1.4426950408889634  # exp(x) = exp2(x * LOG2E)
MASKED = -2.0e38


@dataclass(frozen=True, kw_only=True)
class PrefillBlocks:
    """How the work is cut."""

    rows: int = 4096
    """Queries of a step, all heads of a key head together."""
    keys: int = 1024
    """Of a block."""
    depth: int = 2
    """Blocks under way."""
    ahead: int = 1
    """Tasks that are begun before one ends."""
    vmem_limit_bytes: int = 100 << 20


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """What is known while tracing."""

    chunk: int
    kv_heads: int
    group: int
    queries: int
    page: int
    at_once: int
    depth: int
    ahead: int
    scale: float
    softcap: float | None
    window: int | None
    v_scale: float
    values: slice
    """Columns of the last cache."""
    caches: int
    sinks: bool

    @property
    def keys(self) -> int:
        """Of a block."""
        return self.at_once * self.page

    @property
    def tile(self) -> int:
        """Queries of a task, of one head."""
        return min(LANES, self.queries)

    @property
    def tiles(self) -> range:
        """The first rows of each."""
        return range(0, self.group * self.queries, self.tile)


def _wide(x, width):
    """(rows, LANES), equal along the lanes -> (rows, width)."""
    return jnp.tile(x, (1, width // LANES))


def _prefill(lengths, table, q_ref, *refs, sizes):
    """refs: sinks if any, the caches in HBM, the output; q scaled, the caches' rings, their semaphores, a block of the
    caches in q's dtype if theirs is narrow, sums, and a place.

    The place is that of the block to fetch next, over all steps, behind how many blocks were attended.
    """
    sink_ref, refs = (refs[0], refs[1:]) if sizes.sinks else (None, refs)
    caches, (o_ref, q_rows, *refs) = refs[: sizes.caches], refs[sizes.caches :]
    rings, (here, *narrow, s_ref, p_ref, rescale_ref, m_ref, l_ref, acc_ref, place) = (
        refs[: sizes.caches], refs[sizes.caches :],
    )  # fmt: skip
    v_ring = rings[-1]
    b, h, step = (pl.program_id(axis) for axis in range(3))
    dtype, keys, batch, steps = q_rows.dtype, sizes.keys, pl.num_programs(0), pl.num_programs(2)

    def queries_of(b, step):
        """The place of a step's first query, which may be before 0, where there is none; and that behind its last."""
        first = lengths[b] - sizes.chunk + step * sizes.queries
        return first, jnp.maximum(jnp.minimum(first + sizes.queries, lengths[b]), 0)

    def pages_of(b, step):
        """The first page of keys of a step, and that behind its last."""
        first, behind = queries_of(b, step)
        end = pl.cdiv(behind, sizes.page)
        before = 0 if sizes.window is None else jnp.maximum(first - sizes.window + 1, 0) // sizes.page
        return jnp.minimum(before, end), end

    def with_block(b, h, step, page):
        """The block from this page on, or the first one of the next step that has any."""

        def over(at):
            b, h, step, _ = at
            h, step = jnp.where(step + 1 == steps, h + 1, h), jnp.where(step + 1 == steps, 0, step + 1)
            b, h = jnp.where(h == sizes.kv_heads, b + 1, b), jnp.where(h == sizes.kv_heads, 0, h)
            return b, h, step, pages_of(jnp.minimum(b, batch - 1), step)[0]

        def missing(at):
            b, _, step, page = at
            return (b < batch) & (page >= pages_of(jnp.minimum(b, batch - 1), step)[1])

        return jax.lax.while_loop(missing, over, (b, h, step, page))

    def some_of(b, page):
        """How many pages a block has."""
        return jnp.minimum(pl.cdiv(lengths[b], sizes.page) - page, sizes.at_once)

    def copies(b, h, page, n, slot):
        rows = pl.ds(n * sizes.page if isinstance(n, int) else pl.multiple_of(n * sizes.page, sizes.page), sizes.page)
        at = jnp.clip(table[b, page + n], 0, caches[0].shape[1] - 1)
        return [
            pltpu.make_async_copy(cache.at[h, at], ring.at[slot, rows], here.at[i, slot])
            for i, (cache, ring) in enumerate(zip(caches, rings, strict=True))
        ]

    def fetch(at, slot):
        """Begins to fetch a block; the place of the one behind it."""
        b, h, step, page = at

        def start(n):
            for copy in copies(b, h, page, n, slot):
                copy.start()

        @pl.when(b < batch)
        def _start():
            count = some_of(b, page)

            @pl.when(count == sizes.at_once)
            def _whole():
                for n in range(sizes.at_once):
                    start(n)

            pl.when(count < sizes.at_once)(lambda: pl.loop(0, count)(start))

        return with_block(b, h, step, page + sizes.at_once)

    def wait(page, slot):
        count = some_of(b, page)

        @pl.when(count == sizes.at_once)
        def _whole():
            for i, ring in enumerate(rings):
                pltpu.make_async_copy(ring.at[slot], ring.at[slot], here.at[i, slot]).wait()

        @pl.when(count < sizes.at_once)
        def _some():
            @pl.loop(0, count)
            def _page(n):
                for copy in copies(b, h, page, n, slot):
                    copy.wait()

        @pl.when(lengths[b] - page * sizes.page < keys)
        def _last():  # what lies behind the last key may be anything, and a weight of 0 does not undo a NaN
            v, row = v_ring[slot], jax.lax.broadcasted_iota(jnp.int32, v_ring.shape[1:], 0)
            v_ring[slot] = jnp.where(row < lengths[b] - page * sizes.page, v, jnp.zeros_like(v))

    def put(done, at):
        for n, value in enumerate((done, *at)):
            place[n] = value

    @pl.when((b == 0) & (h == 0) & (step == 0))
    def _first():
        zero = jnp.int32(0)
        at = with_block(zero, zero, zero, pages_of(0, 0)[0])
        for slot in range(sizes.depth):
            at = fetch(at, slot)
        put(zero, at)

    factor = sizes.scale * LOG2E if sizes.softcap is None else sizes.scale / sizes.softcap
    if q_ref.shape[2] < q_rows.shape[1]:
        q_rows[...] = jnp.zeros_like(q_rows)
    for head in range(sizes.group):
        rows = slice(head * sizes.queries, (head + 1) * sizes.queries)
        q_rows[rows, : q_ref.shape[2]] = (q_ref[head].astype(jnp.float32) * factor).astype(dtype)
        m_ref[rows, :] = jnp.broadcast_to(
            sink_ref[head : head + 1, :] if sizes.sinks else MASKED, (sizes.queries, LANES)
        )
    l_ref[...] = jnp.full_like(l_ref, 1 / LANES if sizes.sinks else 0.0)  # a weight of one, lane by lane
    acc_ref[...] = jnp.zeros_like(acc_ref)

    (first, behind), (begin, end) = queries_of(b, step), pages_of(b, step)
    seen = 0 if sizes.window is None else behind - sizes.window  # the first key that all queries attend

    def block(start, k_now, v_now, masked):
        def score(row):
            rows = slice(row, row + sizes.tile)
            scores = jax.lax.dot_general(
                q_rows[rows, :], k_now[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
            )
            if sizes.softcap is not None:
                scores = jnp.tanh(scores) * (sizes.softcap * LOG2E)
            if masked:
                key = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1) + start
                ahead = key - jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0) - (first + row % sizes.queries)
                attends = ahead <= 0
                if sizes.window is not None:
                    attends &= ahead > -sizes.window
                scores = jnp.where(attends & (key < lengths[b]), scores, MASKED)
            s_ref[rows, :] = scores

        def soften(row):
            rows = slice(row, row + sizes.tile)
            scores, before = s_ref[rows, :], m_ref[rows, :]
            m = jnp.maximum(before, jnp.max(scores, axis=1, keepdims=True))
            rescale = jnp.exp2(before - m)
            total = rescale * l_ref[rows, :]
            for column in range(0, keys, LANES):
                p = jnp.exp2(scores[:, column : column + LANES] - m)
                p_ref[rows, column : column + LANES] = p.astype(dtype)
                total += p
            m_ref[rows, :], l_ref[rows, :], rescale_ref[rows, :] = m, total, rescale

        def gather(row):
            rows = slice(row, row + sizes.tile)
            part = jnp.dot(p_ref[rows, :], v_now[...], preferred_element_type=jnp.float32)
            acc_ref[rows, :] = _wide(rescale_ref[rows, :], part.shape[1]) * acc_ref[rows, :] + part

        begun = sizes.tiles[: sizes.ahead]
        for row in begun:
            score(row)
        for row in begun:
            soften(row)
        for at, row in enumerate(sizes.tiles):
            for coming in sizes.tiles[at + sizes.ahead : at + sizes.ahead + 1]:
                score(coming)
                soften(coming)
            gather(row)

    @pl.loop(begin, end, step=sizes.at_once)
    def _block(page):
        done, start = place[0], page * sizes.page
        slot = jax.lax.rem(done, sizes.depth)
        wait(page, slot)
        blocks = narrow or [ring.at[slot] for ring in rings]
        for now, ring in zip(narrow, rings, strict=False):
            now[...] = ring[slot].astype(dtype)
        k_now, v_now = blocks[0], blocks[-1]
        every = (start >= seen) & (start + keys <= first + 1)
        pl.when(every)(lambda: block(start, k_now, v_now, False))
        pl.when(jnp.logical_not(every))(lambda: block(start, k_now, v_now, True))
        put(done + 1, fetch(tuple(place[n] for n in range(1, 5)), slot))

    for row in sizes.tiles:
        head, at = divmod(row, sizes.queries)
        rows = slice(row, row + sizes.tile)
        total = jnp.sum(l_ref[rows, :], axis=1, keepdims=True)
        inverse = jnp.where(m_ref[rows, :] <= MASKED / 2, 0.0, sizes.v_scale / total)  # zeros without keys
        out = acc_ref[rows, :] * _wide(inverse, acc_ref.shape[1])
        o_ref[head, at : at + sizes.tile, :] = out[:, sizes.values].astype(dtype)


def paged_prefill(
    q, k, v, lengths, table, *, scale, softcap=None, window=None, v_scale=1.0, values=None, sinks=None, blocks
):
    """Attend, the last queries of every sequence.

    Args:
      q: bfloat16[batch, heads, chunk, dim]: the queries of the last ``chunk`` places; those before a sequence begins
        have zeros.
      k, v: [key heads, pages, page, columns], bfloat16, int8 or float8, columns a multiple of 128; a page is whole in
        tiles of its dtype. The first ``dim`` columns of k are the keys, and the rest meets zeros. Without v, ``values``
        are columns of k.
      lengths: int32[batch], how many keys each sequence has, 0 allowed.
      table: int32[batch, pages of a sequence]; entries behind a length are not read.
      scale: of the scores, what k is to be multiplied with in it; ``v_scale`` the same of v.
      softcap: scores become ``softcap * tanh(score / softcap)``.
      window: a query attends the last so many keys alone, its own among them.
      values: a slice of columns; all of v by default.
      sinks: None, or float32[heads]: a score of each head, in the base of exp2, that the softmax sees beside the others
        and that has no value.

    Returns:
      bfloat16[batch, heads, chunk, dim of the values].
    """
    (batch, heads, chunk, dim), (kv_heads, _, page, _), pages = q.shape, k.shape, table.shape[1]
    group, columns, caches = heads // kv_heads, k.shape[-1], [k] if v is None else [k, v]
    values = values or slice(0, columns)
    unit = LANES if min(chunk, blocks.rows // group) >= LANES else 16
    queries = min(pl.cdiv(chunk, unit), max(1, blocks.rows // group // unit)) * unit
    whole = LANES // math.gcd(LANES, page)  # so many pages are whole in lanes
    at_once = pl.cdiv(min(pages, max(1, blocks.keys // page)), whole) * whole
    sizes = _Sizes(
        chunk=chunk, kv_heads=kv_heads, group=group, queries=queries, page=page, at_once=at_once, depth=blocks.depth,
        ahead=blocks.ahead, scale=scale, softcap=softcap, window=window, v_scale=v_scale, values=values,
        caches=len(caches), sinks=sinks is not None,
    )  # fmt: skip
    rows, in_hbm = group * queries, pl.BlockSpec(memory_space=pl.ANY)
    in_smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    out_dim = values.stop - values.start
    q_spec, out_spec = (
        pl.BlockSpec((None, None, group, queries, width), lambda b, h, i: (b, h, 0, i, 0)) for width in (dim, out_dim)
    )
    beside, beside_specs = [], []
    if sinks is not None:
        beside = [jnp.broadcast_to(sinks.reshape(kv_heads, group, 1), (kv_heads, group, LANES))]
        beside_specs = [pl.BlockSpec((None, group, LANES), lambda b, h, i: (h, 0, 0))]
    narrow = [] if k.dtype == q.dtype else [pltpu.VMEM((sizes.keys, columns), q.dtype)] * len(caches)
    out = pl.pallas_call(
        functools.partial(_prefill, sizes=sizes),
        out_shape=jax.ShapeDtypeStruct((batch, kv_heads, group, chunk, out_dim), q.dtype),
        grid=(batch, kv_heads, pl.cdiv(chunk, queries)),
        in_specs=[in_smem, in_smem, q_spec, *beside_specs, *[in_hbm] * len(caches)],
        out_specs=out_spec,
        scratch_shapes=[
            pltpu.VMEM((rows, columns), q.dtype),
            *[pltpu.VMEM((blocks.depth, sizes.keys, columns), k.dtype)] * len(caches),
            pltpu.SemaphoreType.DMA((len(caches), blocks.depth)),
            *narrow,
            pltpu.VMEM((rows, sizes.keys), jnp.float32),
            pltpu.VMEM((rows, sizes.keys), q.dtype),
            *[pltpu.VMEM((rows, LANES), jnp.float32)] * 3,
            pltpu.VMEM((rows, columns), jnp.float32),
            pltpu.SMEM((5,), jnp.int32),
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=blocks.vmem_limit_bytes, disable_bounds_checks=True),
    )(lengths, table, q.reshape(batch, kv_heads, group, chunk, dim), *beside, *caches)
    return out.reshape(batch, heads, chunk, out_dim)


# ---- the problem that the ratchet judges ----

KERNEL_NAME = "paged_prefill"
PROBLEM_DESCRIPTION = (
    "chunked prefill, the last 512 of 4096 tokens, pages of 64, 8 heads on 2 key heads x 128, bfloat16"
)

BATCH, HEADS, KV_HEADS, CHUNK, DIM = 2, 8, 2, 512, 128
PAGE, PAGES = 64, 64
POOL = BATCH * PAGES
SCALE = 0.125 / LOG2E
"""Near 1 / sqrt(DIM), and such that the scaled queries are exact."""
BLOCKS = PrefillBlocks()


def kernel_fn(q, k, v, lengths, table):
    """bfloat16[BATCH, HEADS, CHUNK, DIM]."""
    return paged_prefill(q, k, v, lengths, table, scale=SCALE, blocks=BLOCKS)


def reference_fn(q, k, v, lengths, table):
    """Gather each sequence's pages in order, then plain attention of what each query may see."""
    grouped = q.reshape(BATCH, KV_HEADS, HEADS // KV_HEADS, CHUNK, DIM)
    keys, values = (jnp.moveaxis(pool[:, table], 0, 1).reshape(BATCH, KV_HEADS, -1, DIM) for pool in (k, v))
    scores = jnp.einsum("bhgqd,bhkd->bhgqk", grouped, keys, preferred_element_type=jnp.float32) * SCALE
    own = lengths[:, None, None, None, None] - CHUNK + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 3)
    seen = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 4) <= own
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1).astype(v.dtype)
    out = jnp.einsum("bhgqk,bhkd->bhgqd", weights, values, preferred_element_type=jnp.float32)
    return out.reshape(q.shape).astype(q.dtype)


def generate_inputs(key):
    """Standard normal q, k and v; permuted pages; full sequences, as the judge counts all of a cache as read."""
    q, k, v, t = jax.random.split(key, 4)
    pool = (KV_HEADS, POOL, PAGE, DIM)
    return (
        jax.random.normal(q, (BATCH, HEADS, CHUNK, DIM), jnp.bfloat16),
        jax.random.normal(k, pool, jnp.bfloat16),
        jax.random.normal(v, pool, jnp.bfloat16),
        jnp.full((BATCH,), PAGES * PAGE, jnp.int32),
        jax.random.permutation(t, POOL).reshape(BATCH, PAGES).astype(jnp.int32),
    )


def compute_flops():
    """Useful FLOPs of full sequences: two products of each query with the keys up to its own."""
    return 2 * 2 * BATCH * HEADS * (CHUNK * PAGES * PAGE - CHUNK * (CHUNK - 1) // 2) * DIM


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    rows, row = HEADS // KV_HEADS * CHUNK, DIM * 2
    return {
        "grid": [BATCH, KV_HEADS, 1],
        "buffers": [
            {"name": "q", "size_bytes": rows * row, "double_buffered": True},
            {"name": "o", "size_bytes": rows * row, "double_buffered": True},
            {"name": "q_rows", "size_bytes": rows * row, "double_buffered": False},
            *({"name": x, "size_bytes": BLOCKS.keys * row, "double_buffered": True} for x in ("k", "v")),
            {"name": "s", "size_bytes": rows * BLOCKS.keys * 4, "double_buffered": False},
            {"name": "p", "size_bytes": rows * BLOCKS.keys * 2, "double_buffered": False},
            *({"name": x, "size_bytes": rows * LANES * 4, "double_buffered": False} for x in ("rescale", "m", "l")),
            {"name": "acc", "size_bytes": rows * DIM * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "q", "size_bytes": BATCH * HEADS * CHUNK * row, "re_reads": 1},
            *({"name": x, "size_bytes": KV_HEADS * POOL * PAGE * row, "re_reads": 1} for x in ("k", "v")),
        ],
        "outputs": [{"name": "o", "size_bytes": BATCH * HEADS * CHUNK * row, "re_reads": 1}],
        "vreg_estimate_bytes": LANES * BLOCKS.keys * 4,
    }
