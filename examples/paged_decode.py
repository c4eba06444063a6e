"""Decoding against a paged, ragged cache, grouped-query heads, on one chip or the four of a slice.

q: bfloat16[BATCH, Q_HEADS, HEAD_DIM]; k, v: bfloat16[KV_HEADS, CHIPS * POOL, PAGE, HEAD_DIM], of which every chip holds
POOL pages; lengths: int32[BATCH], how many keys each sequence has, all chips together; table: int32[CHIPS, BATCH,
PAGES], for every chip the pages, by their place in its own pool, that hold its part of each sequence. A sequence is
shared out evenly by place: chip c holds keys c * SHARD to (c + 1) * SHARD, so a short one leaves chips empty.

The output lies over the chips by heads, as an output projection that is sharded by heads wants it: a chip combines
what all four found for its own heads, and for no others. Each chip walks its blocks of PAGES_AT_ONCE pages, sequence by
sequence, in each first for the heads of the other chips and last for its own, with DEPTH blocks of K and V under way.
What it found for another chip (output and log-sum-exp of every head) leaves as soon as it is there, so that the talk
is hidden behind the cache. Where a page of one chip's heads is so small that its copy would cost more to start than to
move, all heads are attended to in one walk, and the last sequence's results leave at the end.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "paged_decode"

CHIPS = 4
BATCH = 8
Q_HEADS = 32
KV_HEADS = 8
HEAD_DIM = 128
CONTEXT = 8192
PAGE = 64
RAGGED = False

SHARD = CONTEXT // CHIPS
PAGES = SHARD // PAGE
POOL = BATCH * PAGES
GROUP = Q_HEADS // KV_HEADS
OWN = KV_HEADS // CHIPS  # key heads whose output lies on a chip
if KV_HEADS % CHIPS:
    raise ValueError(f"{KV_HEADS} key heads do not lie evenly on {CHIPS} chips")
ROUNDS = CHIPS if OWN * PAGE * HEAD_DIM * 2 >= 32 << 10 else 1  # walks through a sequence, one per chip's heads
HEADS_AT_ONCE = KV_HEADS // ROUNDS
PAGES_AT_ONCE = min(PAGES, max(1, 2048 // HEADS_AT_ONCE // PAGE))
BKV = PAGES_AT_ONCE * PAGE
DEPTH = 4
MESH = pl.DeviceIdType.MESH
LOG2_E = 1.4426950408889634  # exp(x) = exp2(x * LOG2_E)

PROBLEM_DESCRIPTION = (
    f"decode, {BATCH} sequences of {'up to ' if RAGGED else ''}{CONTEXT}, {Q_HEADS} query and {KV_HEADS} key heads x "
    f"{HEAD_DIM}, pages of {PAGE}, {CHIPS} chips, bfloat16"
)


def _attend(
    lengths,
    table,
    q_ref,
    k_hbm,
    v_hbm,
    o_ref,
    q_rows,
    k_ring,
    v_ring,
    here,
    acc_ref,
    m_ref,
    l_ref,
    found,
    heard,
    sent,
    arrived,
):
    me = jax.lax.axis_index("chip")

    def keys_of(b):
        """Keys of sequence ``b`` on this chip."""
        return jnp.clip(lengths[b] - me * SHARD, 0, SHARD)

    def blocks_of(b):
        """Its blocks; an empty one counts as a block, in which nothing is fetched."""
        return jnp.maximum(pl.cdiv(keys_of(b), BKV), 1)

    def next_block(b, r, i):
        walked = i + 1 >= blocks_of(jnp.minimum(b, BATCH - 1))
        done = walked & (r + 1 >= ROUNDS)
        return jnp.where(done, b + 1, b), jnp.where(done, 0, jnp.where(walked, r + 1, r)), jnp.where(walked, 0, i + 1)

    def first_head(r):
        """Of round ``r``: the next chip's heads come first, this chip's own last."""
        return jax.lax.rem(me + 1 + r, ROUNDS) * HEADS_AT_ONCE

    def page_copies(b, r, i, n, slot):
        page, rows = table[0, b, i * PAGES_AT_ONCE + n], pl.ds(n * PAGE, PAGE)
        heads = pl.ds(first_head(r), HEADS_AT_ONCE)
        return (
            pltpu.make_async_copy(k_hbm.at[heads, page], k_ring.at[slot, :, rows], here.at[0, slot]),
            pltpu.make_async_copy(v_hbm.at[heads, page], v_ring.at[slot, :, rows], here.at[1, slot]),
        )

    def for_each_page(b, r, i, slot, do, whole):
        """``do`` the copies of K and V of each page that the block has, or ``whole`` where it has all of them."""
        left = keys_of(b) - i * BKV
        pl.when(left > BKV - PAGE)(whole)

        @pl.when(left <= BKV - PAGE)
        def _some():
            for n in range(PAGES_AT_ONCE - 1):

                @pl.when(n * PAGE < left)
                def _page(n=n):
                    for copy in page_copies(b, r, i, n, slot):
                        do(copy)

    def fetch(b, r, i, slot):
        def all_pages():
            for n in range(PAGES_AT_ONCE):
                for copy in page_copies(b, r, i, n, slot):
                    copy.start()

        @pl.when(b < BATCH)
        def _start():
            for_each_page(b, r, i, slot, lambda copy: copy.start(), all_pages)

    def wait(b, r, i, slot):
        def all_bytes():
            for number, ring in enumerate((k_ring, v_ring)):
                pltpu.make_async_copy(ring.at[slot], ring.at[slot], here.at[number, slot]).wait()

        for_each_page(b, r, i, slot, lambda copy: copy.wait(), all_bytes)

    def send(b, owner):
        return pltpu.make_async_remote_copy(
            found.at[owner, b], heard.at[me, b], sent.at[owner], arrived.at[me], device_id=(owner,), device_id_type=MESH
        )

    zero = jnp.int32(0)
    ahead = (zero, zero, zero)
    for slot in range(DEPTH):
        fetch(*ahead, slot)
        ahead = next_block(*ahead)
    if CHIPS > 1:
        barrier = pltpu.get_barrier_semaphore()
        for step in range(1, CHIPS):
            pl.semaphore_signal(barrier, 1, device_id=(jax.lax.rem(me + step, CHIPS),), device_id_type=MESH)

    @pl.loop(0, BATCH)
    def _scale(b):
        q = q_ref[b].astype(jnp.float32) * (HEAD_DIM**-0.5 * LOG2_E)
        for head in range(KV_HEADS):
            q_rows[b, head] = q[head * GROUP : (head + 1) * GROUP]

    def block(t, carry):
        b, r, i, *ahead = carry
        slot = jax.lax.rem(t, DEPTH)
        left = keys_of(b) - i * BKV
        wait(b, r, i, slot)

        @pl.when(i == 0)
        def _first():
            acc_ref[...] = jnp.zeros_like(acc_ref)
            m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
            l_ref[...] = jnp.zeros_like(l_ref)

        @pl.when(left < BKV)
        def _partial():  # what lies behind the last key may be anything, and a weight of 0 does not undo a NaN
            v = v_ring[slot]
            v_ring[slot] = jnp.where(jax.lax.broadcasted_iota(jnp.int32, v.shape, 1) < left, v, jnp.zeros_like(v))

        # Stage by stage over all heads, so that what one head waits for is hidden behind the others.
        heads = range(HEADS_AT_ONCE)
        groups = [q_rows[b, first_head(r) + head].astype(k_ring.dtype) for head in heads]
        scores = [
            jax.lax.dot_general(
                groups[head], k_ring[slot, head], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
            )
            for head in heads
        ]
        valid = jax.lax.broadcasted_iota(jnp.int32, (GROUP, BKV), 1) < left
        scores = [jnp.where(valid, each, -jnp.inf) for each in scores]
        before = [m_ref[head] for head in heads]
        top = [jnp.maximum(before[head], jnp.max(scores[head], axis=1, keepdims=True)) for head in heads]
        base = [jnp.where(m == -jnp.inf, 0.0, m) for m in top]
        weights = [jnp.exp2(scores[head] - base[head][:, :1]) for head in heads]
        rescale = [jnp.exp2(before[head] - base[head]) for head in heads]
        sums = [jnp.sum(p, axis=1, keepdims=True) for p in weights]
        found_here = [
            jnp.dot(weights[head].astype(v_ring.dtype), v_ring[slot, head], preferred_element_type=jnp.float32)
            for head in heads
        ]
        for head in heads:
            m_ref[head] = top[head]
            l_ref[head] = rescale[head] * l_ref[head] + sums[head]
            acc_ref[head] = rescale[head] * acc_ref[head] + found_here[head]

        fetch(*ahead, slot)

        @pl.when(i + 1 >= blocks_of(b))
        def _done():
            for step in range(1, CHIPS // ROUNDS + 1):
                owner = jax.lax.rem(me + step + r, CHIPS)
                own = pl.ds(owner * OWN if ROUNDS == 1 else 0, OWN)
                total = l_ref[own]
                found[owner, b, 0] = acc_ref[own] / jnp.where(total > 0, total, 1.0)
                found[owner, b, 1] = jnp.where(total > 0, m_ref[own] + jnp.log2(total), -jnp.inf)
                if step < CHIPS:

                    @pl.when(owner != me)
                    def _tell(step=step, owner=owner):
                        if step == 1:
                            pl.when((b == 0) & (r == 0))(lambda: pl.semaphore_wait(barrier, CHIPS - 1))
                        send(b, owner).start()

        return (*next_block(b, r, i), *next_block(*ahead))

    total_blocks = ROUNDS * jax.lax.fori_loop(0, BATCH, lambda b, n: n + blocks_of(b), jnp.int32(0))
    jax.lax.fori_loop(0, total_blocks, block, (zero, zero, zero, *ahead))
    for step in range(1, CHIPS):
        other = jax.lax.rem(me + step, CHIPS)
        pltpu.make_async_copy(found.at[other], found.at[other], sent.at[other]).wait()
        pltpu.make_async_copy(heard.at[other], heard.at[other], arrived.at[other]).wait()

    @pl.loop(0, BATCH)
    def _combine(b):
        chips = [found[me, b], *(heard[jax.lax.rem(me + step, CHIPS), b] for step in range(1, CHIPS))]
        top = functools.reduce(jnp.maximum, [lse for _, lse in chips])
        weights = [jnp.exp2(lse - top) for _, lse in chips]
        o = sum(weight * o for weight, (o, _) in zip(weights, chips, strict=True)) / sum(weights)
        o_ref[b] = o.reshape(OWN * GROUP, HEAD_DIM).astype(o_ref.dtype)


def _decode_shard(q, k, v, lengths, table):
    in_hbm, in_vmem = pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pltpu.VMEM)
    in_smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    ring = pltpu.VMEM((DEPTH, HEADS_AT_ONCE, BKV, HEAD_DIM), k.dtype)
    state = pltpu.VMEM((HEADS_AT_ONCE, GROUP, HEAD_DIM), jnp.float32)
    results = pltpu.VMEM((CHIPS, BATCH, 2, OWN, GROUP, HEAD_DIM), jnp.float32)  # output, log-sum-exp
    return pl.pallas_call(
        _attend,
        out_shape=jax.ShapeDtypeStruct((BATCH, OWN * GROUP, HEAD_DIM), q.dtype),
        in_specs=[in_smem, in_smem, in_vmem, in_hbm, in_hbm],
        out_specs=in_vmem,
        scratch_shapes=[
            pltpu.VMEM((BATCH, KV_HEADS, GROUP, HEAD_DIM), jnp.float32),
            *(ring, ring),
            pltpu.SemaphoreType.DMA((2, DEPTH)),
            *(state, state, state),
            *(results, results),  # found here, by owner; heard, by sender
            pltpu.SemaphoreType.DMA((CHIPS,)),
            pltpu.SemaphoreType.DMA((CHIPS,)),
        ],
        compiler_params=pltpu.CompilerParams(
            collective_id=0 if CHIPS > 1 else None, has_side_effects=CHIPS > 1, vmem_limit_bytes=100 << 20
        ),
    )(lengths, table, q, k, v)


def kernel_fn(q, k, v, lengths, table):
    pages = P(None, "chip")
    specs = {"in_specs": (P(), pages, pages, P(), P("chip")), "out_specs": P(None, "chip")}
    return jax.shard_map(_decode_shard, **specs, check_vma=False)(q, k, v, lengths, table)


def reference_fn(q, k, v, lengths, table):
    """Gather each sequence's pages in order, then plain attention with what lies behind its length left out."""

    def gathered(pool):
        by_chip = pool.reshape(KV_HEADS, CHIPS, POOL, PAGE, HEAD_DIM)
        own = jax.vmap(lambda pages, which: pages[:, which], in_axes=(1, 0))(by_chip, table)
        return jnp.moveaxis(own, 0, 2).reshape(KV_HEADS, BATCH, CONTEXT, HEAD_DIM)

    grouped = q.reshape(BATCH, KV_HEADS, GROUP, HEAD_DIM)
    scores = jnp.einsum("bhgd,hbkd->bhgk", grouped, gathered(k), preferred_element_type=jnp.float32)
    valid = jnp.arange(CONTEXT) < lengths[:, None, None, None]
    weights = jax.nn.softmax(jnp.where(valid, scores * (HEAD_DIM**-0.5), -jnp.inf), axis=-1).astype(v.dtype)
    o = jnp.einsum("bhgk,hbkd->bhgd", weights, gathered(v), preferred_element_type=jnp.float32)
    return o.reshape(BATCH, Q_HEADS, HEAD_DIM).astype(q.dtype)


def generate_inputs(key):
    """Standard normal q and pools, permuted pages; lengths full, or ragged: one key, a full one, others."""
    q, k, v, n, t = jax.random.split(key, 5)
    pool = (KV_HEADS, CHIPS * POOL, PAGE, HEAD_DIM)
    lengths = jnp.full((BATCH,), CONTEXT, jnp.int32)
    if RAGGED:
        some = jax.random.randint(n, (BATCH,), 1, CONTEXT + 1)
        lengths = some.at[0].set(1).at[BATCH - 1].set(CONTEXT).astype(jnp.int32)
    table = jax.vmap(lambda own: jax.random.permutation(own, POOL))(jax.random.split(t, CHIPS))
    return (
        jax.random.normal(q, (BATCH, Q_HEADS, HEAD_DIM), jnp.bfloat16),
        jax.random.normal(k, pool, jnp.bfloat16),
        jax.random.normal(v, pool, jnp.bfloat16),
        lengths,
        table.reshape(CHIPS, BATCH, PAGES).astype(jnp.int32),
    )


def compute_flops():
    """Useful FLOPs of full sequences: two products of every key with each query head that reads it."""
    return 2 * 2 * BATCH * Q_HEADS * CONTEXT * HEAD_DIM


def get_tiling_meta():
    """The mesh that the chips form and how the inputs lie on it; then what the author believes of one chip."""
    block, shard = HEADS_AT_ONCE * BKV * HEAD_DIM * 2, KV_HEADS * POOL * PAGE * HEAD_DIM * 2
    query, state = BATCH * Q_HEADS * HEAD_DIM * 2, HEADS_AT_ONCE * GROUP * HEAD_DIM * 4
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [[], [None, "chip"], [None, "chip"], [], ["chip"]],
        "grid": [1],
        "buffers": [
            {"name": "k", "size_bytes": DEPTH * block, "double_buffered": False},
            {"name": "v", "size_bytes": DEPTH * block, "double_buffered": False},
            {"name": "scaled q", "size_bytes": 2 * query, "double_buffered": False},
            {"name": "acc, m, l", "size_bytes": 3 * state, "double_buffered": False},
            {"name": "found and heard", "size_bytes": 8 * query, "double_buffered": False},
        ],
        "inputs": [
            {"name": "q", "size_bytes": query, "re_reads": 1},
            {"name": "k", "size_bytes": shard, "re_reads": 1},
            {"name": "v", "size_bytes": shard, "re_reads": 1},
            {"name": "table", "size_bytes": POOL * 4, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": query // CHIPS, "re_reads": 1}],
        "vreg_estimate_bytes": GROUP * BKV * 4,
    }
