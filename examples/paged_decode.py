"""Decoding against a paged, ragged cache, grouped-query heads, on one chip or the four of a slice.

q: bfloat16[BATCH, Q_HEADS, HEAD_DIM]; k, v: bfloat16[KV_HEADS, CHIPS * POOL, PAGE, HEAD_DIM], of which every chip holds
POOL pages; lengths: int32[BATCH], how many keys each sequence has, all chips together; table: int32[CHIPS, BATCH,
PAGES], for every chip the pages, by their place in its own pool, that hold its part of each sequence. A sequence is
shared out evenly by place: chip c holds keys c * SHARD to (c + 1) * SHARD, so a short one leaves chips empty.

Each chip walks its blocks of PAGES_AT_ONCE pages, all sequences one behind the other, with DEPTH blocks of K and V
under way, and attends with all heads to a block. What it found of a sequence (output and log-sum-exp of every head)
goes to the other chips as soon as it is there.
"""

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
PAGES_AT_ONCE = min(PAGES, max(1, 2048 // KV_HEADS // PAGE))
BKV = PAGES_AT_ONCE * PAGE
DEPTH = 4
MESH = pl.DeviceIdType.MESH
LOG2_E = 1.4426950408889634  # exp(x) = exp2(x * LOG2_E)

PROBLEM_DESCRIPTION = (
    f"decode, {BATCH} sequences of {'up to ' if RAGGED else ''}{CONTEXT}, {Q_HEADS} query and {KV_HEADS} key heads x "
    f"{HEAD_DIM}, pages of {PAGE}, {CHIPS} chips, bfloat16"
)


def _attend(
    lengths, table, q_ref, k_hbm, v_hbm, o_ref, k_ring, v_ring, here, acc_ref, m_ref, l_ref, found, sent, arrived
):
    me = jax.lax.axis_index("chip")

    def keys_of(b):
        """Keys of sequence ``b`` on this chip."""
        return jnp.clip(lengths[b] - me * SHARD, 0, SHARD)

    def blocks_of(b):
        """Its blocks; an empty one counts as a block, in which nothing is fetched."""
        return jnp.maximum(pl.cdiv(keys_of(b), BKV), 1)

    def next_block(b, i):
        last = i + 1 >= blocks_of(jnp.minimum(b, BATCH - 1))
        return jnp.where(last, b + 1, b), jnp.where(last, 0, i + 1)

    def page_copies(b, i, n, slot):
        page, rows = table[0, b, i * PAGES_AT_ONCE + n], pl.ds(n * PAGE, PAGE)
        return (
            pltpu.make_async_copy(k_hbm.at[:, page], k_ring.at[slot, :, rows], here.at[0, slot]),
            pltpu.make_async_copy(v_hbm.at[:, page], v_ring.at[slot, :, rows], here.at[1, slot]),
        )

    def for_each_page(b, i, slot, do, whole):
        """``do`` the copies of K and V of each page that the block has, or ``whole`` where it has all of them."""
        left = keys_of(b) - i * BKV
        pl.when(left > BKV - PAGE)(whole)

        @pl.when(left <= BKV - PAGE)
        def _some():
            for n in range(PAGES_AT_ONCE - 1):

                @pl.when(n * PAGE < left)
                def _page(n=n):
                    for copy in page_copies(b, i, n, slot):
                        do(copy)

    def fetch(b, i, slot):
        def all_pages():
            for n in range(PAGES_AT_ONCE):
                for copy in page_copies(b, i, n, slot):
                    copy.start()

        @pl.when(b < BATCH)
        def _start():
            for_each_page(b, i, slot, lambda copy: copy.start(), all_pages)

    def wait(b, i, slot):
        def all_bytes():
            for number, ring in enumerate((k_ring, v_ring)):
                pltpu.make_async_copy(ring.at[slot], ring.at[slot], here.at[number, slot]).wait()

        for_each_page(b, i, slot, lambda copy: copy.wait(), all_bytes)

    def send(ref, step):
        other = jax.lax.rem(me + (2, 1, 3)[step], CHIPS)  # the diagonal chip first: it is two hops away
        return pltpu.make_async_remote_copy(
            ref, ref, sent.at[step], arrived.at[step], device_id=(other,), device_id_type=MESH
        )

    ahead = (jnp.int32(0), jnp.int32(0))
    for slot in range(DEPTH):
        fetch(*ahead, slot)
        ahead = next_block(*ahead)
    if CHIPS > 1:
        barrier = pltpu.get_barrier_semaphore()
        for step in range(1, CHIPS):
            pl.semaphore_signal(barrier, 1, device_id=(jax.lax.rem(me + step, CHIPS),), device_id_type=MESH)

    def block(t, carry):
        b, i, *ahead = carry
        slot = jax.lax.rem(t, DEPTH)
        left = keys_of(b) - i * BKV
        wait(b, i, slot)

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
        heads = range(KV_HEADS)
        q = q_ref[b].astype(jnp.float32) * (HEAD_DIM**-0.5 * LOG2_E)
        groups = [q[head * GROUP : (head + 1) * GROUP].astype(k_ring.dtype) for head in heads]
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
            total = l_ref[...]
            found[me, b, 0] = acc_ref[...] / jnp.where(total > 0, total, 1.0)
            found[me, b, 1] = jnp.where(total > 0, m_ref[...] + jnp.log2(total), -jnp.inf)
            if CHIPS > 1:

                @pl.when(b == 0)
                def _all_here():
                    pl.semaphore_wait(barrier, CHIPS - 1)

                for step in range(CHIPS - 1):
                    send(found.at[me, b], step).start()

        return (*next_block(b, i), *next_block(*ahead))

    total_blocks = jax.lax.fori_loop(0, BATCH, lambda b, n: n + blocks_of(b), jnp.int32(0))
    jax.lax.fori_loop(0, total_blocks, block, (jnp.int32(0), jnp.int32(0), *ahead))
    for step in range(CHIPS - 1):
        send(found.at[me], step).wait()  # the bytes of all sequences together

    @pl.loop(0, BATCH)
    def _combine(b):
        lse = found[:, b, 1]
        weight = jnp.exp2(lse - jnp.max(lse, axis=0))
        o = jnp.sum(found[:, b, 0] * weight, axis=0) / jnp.sum(weight, axis=0)
        o_ref[b] = o.reshape(Q_HEADS, HEAD_DIM).astype(o_ref.dtype)


def _decode_shard(q, k, v, lengths, table):
    in_hbm, in_vmem = pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pltpu.VMEM)
    in_smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    ring = pltpu.VMEM((DEPTH, KV_HEADS, BKV, HEAD_DIM), k.dtype)
    state = pltpu.VMEM((KV_HEADS, GROUP, HEAD_DIM), jnp.float32)
    return pl.pallas_call(
        _attend,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        in_specs=[in_smem, in_smem, in_vmem, in_hbm, in_hbm],
        out_specs=in_vmem,
        scratch_shapes=[
            *(ring, ring),
            pltpu.SemaphoreType.DMA((2, DEPTH)),
            *(state, state, state),
            pltpu.VMEM((CHIPS, BATCH, 2, KV_HEADS, GROUP, HEAD_DIM), jnp.float32),  # output, log-sum-exp
            pltpu.SemaphoreType.DMA((max(1, CHIPS - 1),)),
            pltpu.SemaphoreType.DMA((max(1, CHIPS - 1),)),
        ],
        compiler_params=pltpu.CompilerParams(
            collective_id=0 if CHIPS > 1 else None, has_side_effects=CHIPS > 1, vmem_limit_bytes=100 << 20
        ),
    )(lengths, table, q, k, v)


def kernel_fn(q, k, v, lengths, table):
    pages = P(None, "chip")
    return jax.shard_map(_decode_shard, in_specs=(P(), pages, pages, P(), P("chip")), out_specs=P(), check_vma=False)(
        q, k, v, lengths, table
    )


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
    block, shard = KV_HEADS * BKV * HEAD_DIM * 2, KV_HEADS * POOL * PAGE * HEAD_DIM * 2
    query, state = BATCH * Q_HEADS * HEAD_DIM * 2, KV_HEADS * GROUP * HEAD_DIM * 4
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [[], [None, "chip"], [None, "chip"], [], ["chip"]],
        "grid": [1],
        "buffers": [
            {"name": "k", "size_bytes": DEPTH * block, "double_buffered": False},
            {"name": "v", "size_bytes": DEPTH * block, "double_buffered": False},
            {"name": "acc, m, l", "size_bytes": 3 * state, "double_buffered": False},
            {"name": "found", "size_bytes": CHIPS * BATCH * 2 * state, "double_buffered": False},
        ],
        "inputs": [
            {"name": "q", "size_bytes": query, "re_reads": 1},
            {"name": "k", "size_bytes": shard, "re_reads": 1},
            {"name": "v", "size_bytes": shard, "re_reads": 1},
            {"name": "table", "size_bytes": POOL * 4, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": query, "re_reads": 1}],
        "vreg_estimate_bytes": GROUP * BKV * 4,
    }
