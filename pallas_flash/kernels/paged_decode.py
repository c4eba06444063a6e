"""Decoding against a cache in pages: one query of every sequence, grouped heads, any lengths.

q: bfloat16[BATCH, HEADS, DIM]; k, v: [KV_HEADS, POOL, PAGE, DIM] of bfloat16, int8 or float8; lengths: int32[BATCH],
keys of each sequence; table: int32[BATCH, PAGES], the pages that hold them, in order. The bytes of the cache bound it.

One grid step walks the blocks of all sequences, a few pages of all heads each, with some blocks under way across the
ends of sequences. In a block every stage is done for all heads before the next one, so that what one head waits for is
hidden behind the others. A window begins at the block that holds its first key. Without v, the first columns of k are
the values, too (the latents of DeepSeek's attention).
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

PIECE = 512  # keys whose scores are held together
LOG2E = 1.4426950408889634  # exp(x) = exp2(x * LOG2E)


@dataclass(frozen=True, kw_only=True)
class PagedBlocks:
    """How the cache is cut."""

    rows: int = 4096
    """Of keys in a block, all key heads together."""
    depth: int = 3
    """Blocks under way."""
    vmem_limit_bytes: int = 100 << 20


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """What is known while tracing."""

    batch: int
    kv_heads: int
    group: int
    page: int
    at_once: int
    depth: int
    scale: float
    softcap: float | None
    window: int | None
    v_scale: float
    v_dim: int
    caches: int

    @property
    def keys(self) -> int:
        """Of a block."""
        return self.at_once * self.page

    @property
    def pieces(self) -> list[slice]:
        """Of the keys of a block."""
        return [slice(first, min(first + PIECE, self.keys)) for first in range(0, self.keys, PIECE)]


def _decode(lengths, table, q_ref, *refs, sizes):
    """refs: the caches in HBM, the output; q scaled, the rings of the caches, their semaphores, acc, m and l."""
    caches, (o_ref, q_rows, *rings, here, acc_ref, m_ref, l_ref) = refs[: sizes.caches], refs[sizes.caches :]
    k_ring, v_ring = rings[0], rings[-1]
    batch, keys, heads = sizes.batch, sizes.keys, range(sizes.kv_heads)

    def first_key(b):
        return 0 if sizes.window is None else jnp.maximum(lengths[b] - sizes.window, 0)

    def begin(b):
        """The first block of a sequence."""
        return first_key(jnp.minimum(b, batch - 1)) // keys

    def end(b):
        """Behind its last one; an empty sequence has a block, too, in which nothing is fetched."""
        return jnp.maximum(pl.cdiv(lengths[b], keys), 1)

    def next_block(b, i):
        done = i + 1 >= end(jnp.minimum(b, batch - 1))
        return jnp.where(done, b + 1, b), jnp.where(done, begin(b + 1), i + 1)

    def copies(b, i, n, slot):
        page, rows = table[b, i * sizes.at_once + n], pl.ds(n * sizes.page, sizes.page)
        return [
            pltpu.make_async_copy(cache.at[:, page], ring.at[slot, :, rows], here.at[number, slot])
            for number, (cache, ring) in enumerate(zip(caches, rings, strict=True))
        ]

    def some_pages(b, i, slot, do):
        """``do`` the copies of the pages that a block has, where it does not have all."""
        left = lengths[b] - i * keys

        @pl.when(left <= keys - sizes.page)
        def _some():
            for n in range(sizes.at_once - 1):

                @pl.when(n * sizes.page < left)
                def _page(n=n):
                    for copy in copies(b, i, n, slot):
                        do(copy)

        return left > keys - sizes.page

    def fetch(b, i, slot):
        @pl.when(b < batch)
        def _start():
            @pl.when(some_pages(b, i, slot, lambda copy: copy.start()))
            def _whole():
                for n in range(sizes.at_once):
                    for copy in copies(b, i, n, slot):
                        copy.start()

    def wait(b, i, slot):
        @pl.when(some_pages(b, i, slot, lambda copy: copy.wait()))
        def _whole():
            for number, ring in enumerate(rings):
                pltpu.make_async_copy(ring.at[slot], ring.at[slot], here.at[number, slot]).wait()

    zero = jnp.int32(0)
    ahead = (zero, jnp.int32(begin(zero)))
    for slot in range(sizes.depth):
        fetch(*ahead, slot)
        ahead = next_block(*ahead)
    factor = sizes.scale * LOG2E if sizes.softcap is None else sizes.scale / sizes.softcap

    @pl.loop(0, batch)
    def _scale(b):
        q = q_ref[b].astype(jnp.float32) * factor
        for head in heads:
            q_rows[b, head] = q[head * sizes.group : (head + 1) * sizes.group]

    def block(t, carry):
        b, i, *ahead = carry
        slot = jax.lax.rem(t, sizes.depth)
        left = lengths[b] - i * keys
        wait(b, i, slot)

        @pl.when(i == begin(b))
        def _first():
            acc_ref[...] = jnp.zeros_like(acc_ref)
            m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
            l_ref[...] = jnp.zeros_like(l_ref)

        def rows_of(ring, head, piece, columns):
            return ring[slot, head, piece, :columns].astype(q_ref.dtype)

        @pl.when(left < keys)
        def _partial():  # what lies behind the last key may be anything, and a weight of 0 does not undo a NaN
            behind = jax.lax.broadcasted_iota(jnp.int32, v_ring.shape[2:], 0) >= left
            for head in heads:
                v = v_ring[slot, head]
                v_ring[slot, head] = jnp.where(behind, jnp.zeros_like(v), v)

        tasks = [(head, piece) for head in heads for piece in sizes.pieces]
        scores = {}
        for head, piece in tasks:
            k = rows_of(k_ring, head, piece, k_ring.shape[-1])
            q = q_rows[b, head].astype(q_ref.dtype)
            score = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
            if sizes.softcap is not None:
                score = jnp.tanh(score) * (sizes.softcap * LOG2E)
            key = jax.lax.broadcasted_iota(jnp.int32, score.shape, 1) + piece.start
            attended = key < left
            if sizes.window is not None:
                attended &= key >= first_key(b) - i * keys
            scores[head, piece.start] = jnp.where(attended, score, -jnp.inf)
        before = [m_ref[head] for head in heads]
        top = before[:]
        for head, piece in tasks:
            top[head] = jnp.maximum(top[head], jnp.max(scores[head, piece.start], axis=1, keepdims=True))
        base = [jnp.where(m == -jnp.inf, 0.0, m) for m in top]
        rescale = [jnp.exp2(before[head] - base[head]) for head in heads]
        weights = {
            (head, piece.start): jnp.exp2(scores[head, piece.start] - base[head][:, :1]) for head, piece in tasks
        }
        found, total = (
            [rescale[head][:, :1] * acc_ref[head] for head in heads],
            [rescale[head] * l_ref[head] for head in heads],
        )
        for head, piece in tasks:
            p = weights[head, piece.start]
            v = rows_of(v_ring, head, piece, sizes.v_dim)
            total[head] += jnp.sum(p, axis=1, keepdims=True)
            found[head] += jnp.dot(p.astype(v.dtype), v, preferred_element_type=jnp.float32)
        for head in heads:
            m_ref[head], l_ref[head], acc_ref[head] = top[head], total[head], found[head]

        fetch(*ahead, slot)

        @pl.when(i + 1 >= end(b))
        def _done():
            for head in heads:
                total = l_ref[head][:, :1]
                out = acc_ref[head] * (sizes.v_scale / jnp.where(total > 0, total, 1.0))
                o_ref[b, head] = out.astype(o_ref.dtype)

        return (*next_block(b, i), *next_block(*ahead))

    blocks = jax.lax.fori_loop(0, batch, lambda b, n: n + end(b) - begin(b), zero)
    jax.lax.fori_loop(0, blocks, block, (zero, jnp.int32(begin(zero)), *ahead))


def paged_decode(q, k, v, lengths, table, *, scale, softcap=None, window=None, v_scale=1.0, v_dim=None, blocks):
    """Attend, one query a sequence.

    Args:
      q: bfloat16[batch, heads, dim], dim a multiple of 128.
      k, v: [key heads, pages, page, dim], bfloat16, int8 or float8; a page is whole in tiles of its dtype. Without v,
        the first ``v_dim`` columns of k are the values.
      lengths: int32[batch], how many keys each sequence has, 0 allowed.
      table: int32[batch, pages of a sequence]; entries behind a length are not read.
      scale: of the scores, what k is to be multiplied with in it; ``v_scale`` the same of v.
      softcap: scores become ``softcap * tanh(score / softcap)``.
      window: the last so many keys alone attend.

    Returns:
      bfloat16[batch, heads, dim of v]; zeros for an empty sequence.
    """
    (batch, heads, dim), (kv_heads, _, page, _), pages = q.shape, k.shape, table.shape[1]
    caches = [k] if v is None else [k, v]
    sizes = _Sizes(
        batch=batch, kv_heads=kv_heads, group=heads // kv_heads, page=page, depth=blocks.depth,
        at_once=min(pages, max(1, blocks.rows // kv_heads // page)), scale=scale, softcap=softcap, window=window,
        v_scale=v_scale, v_dim=v.shape[-1] if v is not None else v_dim, caches=len(caches),
    )  # fmt: skip
    in_hbm, in_vmem = pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pltpu.VMEM)
    in_smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    rows = (kv_heads, sizes.group)
    out = pl.pallas_call(
        functools.partial(_decode, sizes=sizes),
        out_shape=jax.ShapeDtypeStruct((batch, *rows, sizes.v_dim), q.dtype),
        in_specs=[in_smem, in_smem, in_vmem, *[in_hbm] * len(caches)],
        out_specs=in_vmem,
        scratch_shapes=[
            pltpu.VMEM((batch, *rows, dim), jnp.float32),
            *(pltpu.VMEM((blocks.depth, kv_heads, sizes.keys, one.shape[-1]), one.dtype) for one in caches),
            pltpu.SemaphoreType.DMA((len(caches), blocks.depth)),
            pltpu.VMEM((*rows, sizes.v_dim), jnp.float32),
            *[pltpu.VMEM((*rows, 128), jnp.float32)] * 2,
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=blocks.vmem_limit_bytes),
    )(lengths, table, q, *caches)
    return out.reshape(batch, heads, sizes.v_dim)


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
    query, cache = BATCH * HEADS * DIM * 2, KV_HEADS * POOL * PAGE * DIM * 2
    return {
        "grid": [],
        "buffers": [
            {"name": "k", "size_bytes": BLOCKS.depth * BLOCKS.rows * DIM * 2, "double_buffered": False},
            {"name": "v", "size_bytes": BLOCKS.depth * BLOCKS.rows * DIM * 2, "double_buffered": False},
            {"name": "q", "size_bytes": query, "double_buffered": False},
            {"name": "o", "size_bytes": query, "double_buffered": False},
        ],
        "inputs": [
            {"name": "q", "size_bytes": query, "re_reads": 1},
            {"name": "k", "size_bytes": cache, "re_reads": 1},
            {"name": "v", "size_bytes": cache, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": query, "re_reads": 1}],
        "vreg_estimate_bytes": HEADS // KV_HEADS * BLOCKS.rows * 4,
    }
