"""Split-KV decoding on the four chips of a TPU v5e 2x2 slice. This is the file that you edit.

One query token of 16 heads attends to a context of 32768 keys: q bfloat16[16, 128]; k, v bfloat16[16, 32768, 128],
whose sequence is sharded over the four chips (each holds 8192 consecutive keys of every head). The result is
softmax(q k^T / sqrt(128)) v, bfloat16[16, 128].

The result lies over the chips by heads, as an output projection that is sharded by heads wants it. Every chip attends
to its own keys, first for the heads of the other chips, last for its own. As soon as it has a head's output and the
log-sum-exp of its scores, it sends both to the chip that owns the head, which adds up the four outputs weighted by
their share of the whole sum: all talk is hidden behind the cache.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "split_kv_decode"
PROBLEM_DESCRIPTION = "decode, 1 token, 16 heads x 128, context 32768 sharded over 4 chips, bfloat16"

CHIPS = 4
HEADS = 16
CONTEXT = 32768
HEAD_DIM = 128
SHARD = CONTEXT // CHIPS
OWN = HEADS // CHIPS

BKV = 2048
DEPTH = 2
LOG2_E = 1.4426950408889634  # exp(x) = exp2(x * LOG2_E)
BLOCKS = SHARD // BKV
MESH = pl.DeviceIdType.MESH


def _attend(
    q_hbm,
    k_hbm,
    v_hbm,
    o_ref,
    q_ref,
    q_rows,
    k_ring,
    v_ring,
    q_here,
    k_here,
    v_here,
    found_ref,
    heard_ref,
    sent,
    arrived,
):
    """All heads on one chip, block by block, DEPTH blocks of K and V under way; then what all found of its own."""
    me = jax.lax.axis_index("chip")
    barrier = pltpu.get_barrier_semaphore()

    def head_of(n):
        """The n-th head that this chip attends with: its own come last."""
        return jax.lax.rem((me + 1) * OWN + n, HEADS)

    def fetches(n, j, slot):
        h, keys = head_of(n), pl.ds(j * BKV, BKV)
        return (
            pltpu.make_async_copy(k_hbm.at[h, keys], k_ring.at[slot], k_here.at[slot]),
            pltpu.make_async_copy(v_hbm.at[h, keys], v_ring.at[slot], v_here.at[slot]),
        )

    def send(h):
        return pltpu.make_async_remote_copy(
            found_ref.at[h],
            heard_ref.at[me, jax.lax.rem(h, OWN)],
            sent,
            arrived,
            device_id=(jax.lax.div(h, OWN),),
            device_id_type=MESH,
        )

    q_copy = pltpu.make_async_copy(q_hbm, q_ref, q_here)
    q_copy.start()
    for slot in range(DEPTH):
        for copy in fetches(0, slot, slot):
            copy.start()
    for step in range(1, CHIPS):
        pl.semaphore_signal(barrier, 1, device_id=(jax.lax.rem(me + step, CHIPS),), device_id_type=MESH)
    q_copy.wait()
    q_rows[...] = q_ref[...].astype(jnp.float32) * (HEAD_DIM**-0.5 * LOG2_E)

    @pl.loop(0, HEADS)
    def _head(n):
        h = head_of(n)
        q = q_rows[pl.ds(h, 1)].astype(k_ring.dtype)  # rows of float32 can be picked at run time, of bfloat16 not
        m = total = acc = None
        for j in range(BLOCKS):
            slot = j % DEPTH
            k_copy, v_copy = fetches(n, j, slot)
            k_copy.wait()
            scores = jax.lax.dot_general(q, k_ring[slot], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
            top = jnp.max(scores, axis=1, keepdims=True)
            m_new = jnp.maximum(m, top) if j else top
            p = jnp.exp2(scores - m_new)
            v_copy.wait()
            part = jnp.dot(p.astype(v_ring.dtype), v_ring[slot], preferred_element_type=jnp.float32)
            summed = jnp.sum(p, axis=1, keepdims=True)
            if j:
                rescale = jnp.exp2(m - m_new)
                total, acc = rescale * total + summed, rescale * acc + part
            else:
                total, acc = summed, part
            m = m_new
            heads_on, j_next = divmod(j + DEPTH, BLOCKS)

            @pl.when(n + heads_on < HEADS)
            def _refill(slot=slot, heads_on=heads_on, j_next=j_next):
                for copy in fetches(n + heads_on, j_next, slot):
                    copy.start()

        found_ref[h, 0:1] = acc / total
        found_ref[h, 1:2] = jnp.broadcast_to(m + jnp.log2(total), (1, HEAD_DIM))

        @pl.when(n == 0)
        def _all_here():
            pl.semaphore_wait(barrier, CHIPS - 1)

        @pl.when(n < HEADS - OWN)
        def _tell():
            send(h).start()

    heard_ref[me] = found_ref[pl.ds(me * OWN, OWN)]
    for ref, semaphore in ((found_ref.at[pl.ds(0, HEADS - OWN)], sent), (heard_ref.at[pl.ds(0, CHIPS - 1)], arrived)):
        pltpu.make_async_copy(ref, ref, semaphore).wait()  # the bytes of all messages together
    lse = heard_ref[:, :, 1]
    weight = jnp.exp2(lse - jnp.max(lse, axis=0))
    o_ref[...] = (jnp.sum(heard_ref[:, :, 0] * weight, axis=0) / jnp.sum(weight, axis=0)).astype(o_ref.dtype)


def _decode_shard(q, k, v):
    """One chip: q bfloat16[HEADS, HEAD_DIM], k, v bfloat16[HEADS, SHARD, HEAD_DIM] -> bfloat16[OWN, HEAD_DIM]."""
    in_hbm, in_vmem = pl.BlockSpec(memory_space=pltpu.HBM), pl.BlockSpec(memory_space=pltpu.VMEM)
    ring = pltpu.VMEM((DEPTH, BKV, HEAD_DIM), k.dtype)
    return pl.pallas_call(
        _attend,
        out_shape=jax.ShapeDtypeStruct((OWN, HEAD_DIM), q.dtype),
        in_specs=[in_hbm, in_hbm, in_hbm],
        out_specs=in_vmem,
        scratch_shapes=[
            pltpu.VMEM((HEADS, HEAD_DIM), q.dtype),
            pltpu.VMEM((HEADS, HEAD_DIM), jnp.float32),
            *(ring, ring),
            pltpu.SemaphoreType.DMA,
            pltpu.SemaphoreType.DMA((DEPTH,)),
            pltpu.SemaphoreType.DMA((DEPTH,)),
            pltpu.VMEM((HEADS, 2, HEAD_DIM), jnp.float32),  # found here: output, log-sum-exp
            pltpu.VMEM((CHIPS, OWN, 2, HEAD_DIM), jnp.float32),  # heard of its own heads, by chip
            pltpu.SemaphoreType.DMA,
            pltpu.SemaphoreType.DMA,
        ],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
    )(q, k, v)


def kernel_fn(q, k, v):
    """Attend: q bfloat16[HEADS, HEAD_DIM], k, v bfloat16[HEADS, CONTEXT, HEAD_DIM] -> bfloat16[HEADS, HEAD_DIM]."""
    keys = P(None, "chip", None)
    return jax.shard_map(_decode_shard, in_specs=(P(), keys, keys), out_specs=P("chip"), check_vma=False)(q, k, v)


def reference_fn(q, k, v):
    """The same in plain jax.numpy, in the problem's own dtypes."""
    scores = jnp.einsum("hd,hkd->hk", q, k, preferred_element_type=jnp.float32) * (HEAD_DIM**-0.5)
    weights = jax.nn.softmax(scores, axis=1)
    return jnp.einsum("hk,hkd->hd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32).astype(q.dtype)


def generate_inputs(key):
    """Standard normal q, k and v."""
    q, k, v = jax.random.split(key, 3)
    cache = (HEADS, CONTEXT, HEAD_DIM)
    return (
        jax.random.normal(q, (HEADS, HEAD_DIM), jnp.bfloat16),
        jax.random.normal(k, cache, jnp.bfloat16),
        jax.random.normal(v, cache, jnp.bfloat16),
    )


def compute_flops():
    """Useful FLOPs: two products of every key with its head's query or weight."""
    return 2 * 2 * HEADS * CONTEXT * HEAD_DIM


def get_tiling_meta():
    """The mesh that the chips form and how the inputs lie on it; then what the author believes of one chip."""
    shard_bytes = HEADS * SHARD * HEAD_DIM * 2
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [[], [None, "chip"], [None, "chip"]],
        "grid": [1],
        # The compiler keeps q and the output in VMEM for the kernel, as none of its buffers.
        "buffers": [
            {"name": "k", "size_bytes": DEPTH * BKV * HEAD_DIM * 2, "double_buffered": False},
            {"name": "v", "size_bytes": DEPTH * BKV * HEAD_DIM * 2, "double_buffered": False},
            {"name": "found", "size_bytes": 2 * HEADS * HEAD_DIM * 4, "double_buffered": False},
            {"name": "heard", "size_bytes": 2 * HEADS * HEAD_DIM * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "q", "size_bytes": HEADS * HEAD_DIM * 2, "re_reads": 1},
            {"name": "k", "size_bytes": shard_bytes, "re_reads": 1},
            {"name": "v", "size_bytes": shard_bytes, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": OWN * HEAD_DIM * 2, "re_reads": 1}],
        "vreg_estimate_bytes": BKV * 4,
    }
