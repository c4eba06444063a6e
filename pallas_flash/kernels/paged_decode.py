"""Decoding against a cache in pages: one query of every sequence, grouped heads, any lengths.

q: bfloat16[BATCH, HEADS, DIM]; k, v: [KV_HEADS, POOL, PAGE, DIM] of bfloat16, int8 or float8; lengths: int32[BATCH],
keys of each sequence; table: int32[BATCH, PAGES], the pages that hold them, in order. The bytes of the cache bound it.

One grid step walks the blocks of all sequences, a few pages of all heads each, with some under way across the ends of
sequences. A turn takes one block, or several where key heads are few: every stage is done for all heads of all its
blocks before the next one, so that what one waits for is hidden behind the others. Each block has a softmax of its own,
and is then added to the sums of its sequence. A window begins at the page that holds its first key. Without v, some
columns of k are the values: the first ones are both (the latents of DeepSeek's attention), or the last ones are values
alone, for heads that are narrower than the lanes.

The compiler's checks of every copy's bounds would take a fifth of the time where there is one key head. Pages are
clamped to the pool instead.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LANES = 128
LOG2E = 1.4426950408889634  # exp(x) = exp2(x * LOG2E)


@dataclass(frozen=True, kw_only=True)
class PagedBlocks:
    """How the cache is cut."""

    keys: int = 256
    """Of a block, in whole pages."""
    tasks: int = 8
    """Blocks of a turn, times key heads, at the least."""
    depth: int = 4
    """Turns under way."""
    vmem_limit_bytes: int = 100 << 20


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """What is known while tracing."""

    batch: int
    kv_heads: int
    group: int
    page: int
    at_once: int
    """Pages of a block."""
    together: int
    """Blocks of a turn."""
    depth: int
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
    def slots(self) -> int:
        """Of the ring."""
        return self.depth * self.together

    @property
    def lanes(self) -> slice:
        """The columns that hold the values, in whole lanes."""
        return slice(self.values.start // LANES * LANES, pl.cdiv(self.values.stop, LANES) * LANES)


def _finite(m):
    """A maximum as something to subtract: 0 where nothing attends."""
    return jnp.where(m == -jnp.inf, 0.0, m)


def _product(a, b, contract):
    """``b`` as it is in the cache: the compiler converts narrow elements on their way into the matrix units."""
    return jax.lax.dot_general(a, b, (((1,), (contract,)), ((), ())), preferred_element_type=jnp.float32)


def _decode(lengths, table, q_ref, *refs, sizes):
    """refs: sinks if any, the caches in HBM, the output; q scaled, rings of the caches, semaphores, acc, m and l."""
    sinks, refs = (refs[0], refs[1:]) if sizes.sinks else (None, refs)
    caches, (o_ref, q_rows, *rings, here, acc_ref, m_ref, l_ref) = refs[: sizes.caches], refs[sizes.caches :]
    k_pages, k_ring, v_ring = caches[0], rings[0], rings[-1]
    batch, keys, heads, together = sizes.batch, sizes.keys, range(sizes.kv_heads), range(sizes.together)

    def first_key(b):
        return 0 if sizes.window is None else jnp.maximum(lengths[b] - sizes.window, 0)

    def begin(b):
        """The first page of a sequence."""
        return first_key(jnp.minimum(b, batch - 1)) // sizes.page

    def blocks_of(b):
        """An empty sequence has a block, too, in which nothing is fetched."""
        return jnp.maximum(pl.cdiv(pl.cdiv(lengths[b], sizes.page) - begin(b), sizes.at_once), 1)

    def next_block(b, page):
        done = (page + sizes.at_once) * sizes.page >= lengths[jnp.minimum(b, batch - 1)]
        return jnp.where(done, b + 1, b), jnp.where(done, begin(b + 1), page + sizes.at_once)

    def blocks_from(b, page):
        """Those of a turn, each a sequence and its first page in it, and the first of the next turn."""
        found = [(b, page)]
        for _ in together:
            found.append(next_block(*found[-1]))
        return found[:-1], found[-1]

    def keys_left(b, page):
        """From the first key of a block to the end of its sequence; none behind the last sequence."""
        return jnp.where(b < batch, lengths[jnp.minimum(b, batch - 1)] - page * sizes.page, 0)

    def copies(b, page, n, slot):
        at, rows = jnp.clip(table[b, page + n], 0, k_pages.shape[1] - 1), pl.ds(n * sizes.page, sizes.page)
        return [
            pltpu.make_async_copy(cache.at[:, at], ring.at[slot, :, rows], here.at[number, slot])
            for number, (cache, ring) in enumerate(zip(caches, rings, strict=True))
        ]

    def each_page(b, page, slot, do, whole):
        """``do`` the copies of a block's pages; ``whole`` where it has all of them."""
        pages = pl.cdiv(keys_left(b, page), sizes.page)
        pl.when(pages >= sizes.at_once)(whole)

        @pl.when(pages < sizes.at_once)
        def _some():
            @pl.loop(0, pages)
            def _page(n):
                for copy in copies(b, page, n, slot):
                    do(copy)

    def fetch(b, page, slot):
        def whole():
            for n in range(sizes.at_once):
                for copy in copies(b, page, n, slot):
                    copy.start()

        each_page(b, page, slot, lambda copy: copy.start(), whole)

    def wait(b, page, slot):
        def whole():
            for number, ring in enumerate(rings):
                pltpu.make_async_copy(ring.at[slot], ring.at[slot], here.at[number, slot]).wait()

        each_page(b, page, slot, lambda copy: copy.wait(), whole)

    zero = jnp.int32(0)
    ahead = (zero, jnp.int32(begin(zero)))
    for slot in range(sizes.slots):
        fetch(*ahead, slot)
        ahead = next_block(*ahead)
    factor = sizes.scale * LOG2E if sizes.softcap is None else sizes.scale / sizes.softcap

    @pl.loop(0, batch)
    def _scale(b):
        q = q_ref[b].astype(jnp.float32) * factor
        if q.shape[1] < q_rows.shape[3]:
            q_rows[b] = jnp.zeros_like(q_rows[b])
        for head in heads:
            q_rows[b, head, :, : q.shape[1]] = q[head * sizes.group : (head + 1) * sizes.group]

    def turn(t, carry):
        blocks, following = blocks_from(*carry[:2])
        slots = [jax.lax.rem(t, sizes.depth) * sizes.together + n for n in together]
        left = [keys_left(*block) for block in blocks]
        own = [jnp.minimum(b, batch - 1) for b, _ in blocks]
        for block, slot, some in zip(blocks, slots, left, strict=True):
            wait(*block, slot)

            @pl.when(some < keys)
            def _partial(slot=slot, some=some):
                # What lies behind the last key may be anything, and a weight of 0 does not undo a NaN.
                @pl.loop(jnp.maximum(some, 0) // sizes.page, sizes.at_once)
                def _page(n):
                    start = pl.multiple_of(n * sizes.page, sizes.page)
                    key = start + jax.lax.broadcasted_iota(jnp.int32, (sizes.page, v_ring.shape[3]), 0)
                    for head in heads:
                        v = v_ring[slot, head, pl.ds(start, sizes.page)]
                        v_ring[slot, head, pl.ds(start, sizes.page)] = jnp.where(key < some, v, jnp.zeros_like(v))

        tasks = [(n, head) for n in together for head in heads]
        scores, top, total, found = {}, {}, {}, {}
        for n, head in tasks:
            q = q_rows[own[n], head].astype(q_ref.dtype)
            score = _product(q, k_ring[slots[n], head], 1)
            if sizes.softcap is not None:
                score = jnp.tanh(score) * (sizes.softcap * LOG2E)
            key = jax.lax.broadcasted_iota(jnp.int32, score.shape, 1)
            attended = key < left[n]
            if sizes.window is not None:
                attended &= key >= first_key(own[n]) - blocks[n][1] * sizes.page
            scores[n, head] = jnp.where(attended, score, -jnp.inf)
        for task in tasks:
            top[task] = jnp.max(scores[task], axis=1, keepdims=True)
        weights = {task: jnp.exp2(scores[task] - _finite(top[task])) for task in tasks}
        for n, head in tasks:
            p = weights[n, head]
            total[n, head] = jnp.sum(p, axis=1, keepdims=True)
            found[n, head] = _product(p.astype(q_ref.dtype), v_ring[slots[n], head, :, sizes.lanes], 0)
        for head in heads:
            m, weight, acc = m_ref[head], l_ref[head], acc_ref[head]
            for n in together:
                first = (blocks[n][1] == begin(own[n])) & (blocks[n][0] < batch)
                m = jnp.where(first, sinks[head] if sizes.sinks else -jnp.inf, m)
                weight, acc = jnp.where(first, 1.0 if sizes.sinks else 0.0, weight), jnp.where(first, 0.0, acc)
                before, m = m, jnp.maximum(m, top[n, head])
                kept, share = jnp.exp2(before - _finite(m)), jnp.exp2(top[n, head] - _finite(m))
                weight = kept * weight + share * total[n, head]
                acc = kept[:, :1] * acc + share[:, :1] * found[n, head]
                out = acc * (sizes.v_scale / jnp.where(weight > 0, weight, 1.0))[:, :1]
                out = out[:, sizes.values.start - sizes.lanes.start :][:, : o_ref.shape[3]]
                o_ref[own[n], head] = out.astype(o_ref.dtype)  # until the sequence's next block
            m_ref[head], l_ref[head], acc_ref[head] = m, weight, acc

        coming, later = blocks_from(*carry[2:])
        for block, slot in zip(coming, slots, strict=True):
            fetch(*block, slot)
        return (*following, *later)

    blocks = jax.lax.fori_loop(0, batch, lambda b, n: n + blocks_of(b), zero)
    jax.lax.fori_loop(0, pl.cdiv(blocks, sizes.together), turn, (zero, jnp.int32(begin(zero)), *ahead))


def paged_decode(
    q, k, v, lengths, table, *, scale, softcap=None, window=None, v_scale=1.0, values=None, sinks=None, blocks
):
    """Attend, one query a sequence.

    Args:
      q: bfloat16[batch, heads, dim].
      k, v: [key heads, pages, page, columns], bfloat16, int8 or float8, columns a multiple of 128; a page is whole in
        tiles of its dtype. The first ``dim`` columns of k are the keys, and the rest meets zeros. Without v, ``values``
        are columns of k.
      lengths: int32[batch], how many keys each sequence has, 0 allowed.
      table: int32[batch, pages of a sequence]; entries behind a length are not read.
      scale: of the scores, what k is to be multiplied with in it; ``v_scale`` the same of v.
      softcap: scores become ``softcap * tanh(score / softcap)``.
      window: the last so many keys alone attend.
      values: a slice of columns; all of v by default.
      sinks: None, or float32[heads]: a score of each head, in the base of exp2, that the softmax sees beside the others
        and that has no value.

    Returns:
      bfloat16[batch, heads, dim of the values]; zeros for an empty sequence.
    """
    (batch, heads, _), (kv_heads, _, page, _), pages = q.shape, k.shape, table.shape[1]
    caches, rows = [k] if v is None else [k, v], (kv_heads, heads // kv_heads)
    values = values or slice(0, v.shape[-1])
    sizes = _Sizes(
        batch=batch,
        kv_heads=kv_heads,
        group=rows[1],
        page=page,
        at_once=min(pages, max(1, blocks.keys // page)),
        together=pl.cdiv(blocks.tasks, kv_heads),
        depth=blocks.depth,
        scale=scale,
        softcap=softcap,
        window=window,
        v_scale=v_scale,
        values=values,
        caches=len(caches),
        sinks=sinks is not None,
    )
    in_hbm, in_vmem = pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pltpu.VMEM)
    in_smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    out_dim, acc_dim = values.stop - values.start, sizes.lanes.stop - sizes.lanes.start
    beside = [] if sinks is None else [jnp.broadcast_to(sinks.reshape(*rows, 1), (*rows, LANES))]
    out = pl.pallas_call(
        functools.partial(_decode, sizes=sizes),
        out_shape=jax.ShapeDtypeStruct((batch, *rows, out_dim), q.dtype),
        in_specs=[in_smem, in_smem, in_vmem, *[in_vmem] * len(beside), *[in_hbm] * len(caches)],
        out_specs=in_vmem,
        scratch_shapes=[
            pltpu.VMEM((batch, *rows, k.shape[-1]), jnp.float32),
            *(pltpu.VMEM((sizes.slots, kv_heads, sizes.keys, one.shape[-1]), one.dtype) for one in caches),
            pltpu.SemaphoreType.DMA((len(caches), sizes.slots)),
            pltpu.VMEM((*rows, acc_dim), jnp.float32),
            *[pltpu.VMEM((*rows, LANES), jnp.float32)] * 2,
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=blocks.vmem_limit_bytes, disable_bounds_checks=True),
    )(lengths, table, q, *beside, *caches)
    return out.reshape(batch, heads, out_dim)


# ---- the problem that the ratchet judges ----

KERNEL_NAME = "paged_decode"
PROBLEM_DESCRIPTION = "decode, 8 sequences of 8192 keys in pages of 64, 32 heads on 8 key heads x 128, bfloat16"

BATCH, HEADS, KV_HEADS, DIM = 8, 32, 8, 128
PAGE, PAGES = 64, 128
POOL = BATCH * PAGES
BLOCKS = PagedBlocks()


def kernel_fn(q, k, v, lengths, table):
    """bfloat16[BATCH, HEADS, DIM]."""
    return paged_decode(q, k, v, lengths, table, scale=DIM**-0.5, blocks=BLOCKS)


def reference_fn(q, k, v, lengths, table):
    """Gather each sequence's pages in order, then plain attention with what lies behind its length left out."""
    grouped = q.reshape(BATCH, KV_HEADS, HEADS // KV_HEADS, DIM)
    keys, values = (jnp.moveaxis(pool[:, table], 0, 1).reshape(BATCH, KV_HEADS, -1, DIM) for pool in (k, v))
    scores = jnp.einsum("bhgd,bhkd->bhgk", grouped, keys, preferred_element_type=jnp.float32) * DIM**-0.5
    valid = jnp.arange(PAGES * PAGE) < lengths[:, None, None, None]
    weights = jax.nn.softmax(jnp.where(valid, scores, -jnp.inf), axis=-1).astype(v.dtype)
    out = jnp.einsum("bhgk,bhkd->bhgd", weights, values, preferred_element_type=jnp.float32)
    return out.reshape(BATCH, HEADS, DIM).astype(q.dtype)


def generate_inputs(key):
    """Standard normal q, k and v; permuted pages; full sequences, as the judge counts all of a cache as read."""
    q, k, v, t = jax.random.split(key, 4)
    pool = (KV_HEADS, POOL, PAGE, DIM)
    return (
        jax.random.normal(q, (BATCH, HEADS, DIM), jnp.bfloat16),
        jax.random.normal(k, pool, jnp.bfloat16),
        jax.random.normal(v, pool, jnp.bfloat16),
        jnp.full((BATCH,), PAGES * PAGE, jnp.int32),
        jax.random.permutation(t, POOL).reshape(BATCH, PAGES).astype(jnp.int32),
    )


def compute_flops():
    """Useful FLOPs of full sequences: two products of every key with each query head that reads it."""
    return 2 * 2 * BATCH * HEADS * PAGES * PAGE * DIM


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    query, cache, rows = BATCH * HEADS * DIM * 2, KV_HEADS * POOL * PAGE * DIM * 2, KV_HEADS * BLOCKS.keys
    return {
        "grid": [],
        "buffers": [
            {"name": "k", "size_bytes": BLOCKS.depth * rows * DIM * 2, "double_buffered": False},
            {"name": "v", "size_bytes": BLOCKS.depth * rows * DIM * 2, "double_buffered": False},
            {"name": "q", "size_bytes": query, "double_buffered": False},
            {"name": "o", "size_bytes": query, "double_buffered": False},
        ],
        "inputs": [
            {"name": "q", "size_bytes": query, "re_reads": 1},
            {"name": "k", "size_bytes": cache, "re_reads": 1},
            {"name": "v", "size_bytes": cache, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": query, "re_reads": 1}],
        "vreg_estimate_bytes": HEADS // KV_HEADS * rows * 4,
    }
