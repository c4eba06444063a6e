"""Ring attention on the eight chips of a 2x4 slice: 4 heads of queries over one head of keys and values, not causal.

q bfloat16[4, 4096, 128]; k, v bfloat16[4096, 128], an eighth of the sequence of each on every chip. The result is
softmax(q k^T / sqrt(128)) v, bfloat16[4, 4096, 128], sharded as q.

Queries stay; keys and values go around the ring in both directions. While a chip attends to a block from either side,
it sends both on, into one of three slots for each direction. A chip tells the sender when a slot is free again. Of the
block of the opposite chip the keys come one way, the values the other. The maximum m, the sum l and the unnormalised
output acc of each query are kept in VMEM (the online softmax of FlashAttention). The MXUs bound it, with 21.8 us; each
link takes 18.4 us. Neighbours have a link of their own, which neighbours in the order of the mesh do not always have.
Queries and the chip's own keys and values come to VMEM while the chips meet. Mutation to try next: smaller messages,
as little is computed before the first arrive; blocks that are attended to in halves cost more than that saves.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "ring_attention"
PROBLEM_DESCRIPTION = "attention, 4 heads of queries over 1 of keys, bfloat16[4096, 128] each, sequence over 8 chips"

CHIPS, HEADS, SEQ, HEAD_DIM = 8, 4, 4096, 128
SHARD = SEQ // CHIPS
HALFWAY = CHIPS // 2
RING = (0, 1, 3, 6, 4, 5, 7, 2)  # each has a link to the next, where jax.make_mesh puts them on a slice of 2x4
QUERIES = HEADS * SHARD
LANES = 128
LOG2E = 1.4426950408889634  # exp(x) = exp2(x * LOG2E)
BQ = 256
DEPTH = 3


def _neighbour(me, way):
    """The next chip on the ring to the right, or with ``way`` -1 to the left."""
    return sum(jnp.where(me == chip, RING[(place + way) % CHIPS], 0) for place, chip in enumerate(RING))


def _meet(neighbours):
    """Wait until the neighbours have started the kernel, too."""
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in neighbours:
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,), device_id_type=pl.DeviceIdType.MESH)
    pl.semaphore_wait(barrier, len(neighbours))


def _sum_lanewise(p):
    """(rows, n * LANES) -> (rows, LANES): adds whole vector registers; the sum across lanes waits for the end."""
    return sum(p[:, start : start + LANES] for start in range(0, p.shape[1], LANES))


def _attend(
    q_hbm,
    k_hbm,
    v_hbm,
    o_ref,
    q_ref,
    k_ref,
    v_ref,
    slots,
    q_scaled_ref,
    m_ref,
    l_ref,
    acc_ref,
    fetched,
    sent,
    arrived,
    free,
):
    """All queries of one chip: its own keys first, then those of the chips on both sides, the nearest first."""
    me = jax.lax.axis_index("chip")
    neighbours = _neighbour(me, 1), _neighbour(me, -1)
    ways = range(2)  # to the right, to the left

    def held(way, step):
        """The keys and values that this chip passes on in ``step`` in this direction; it attends to them then, too."""
        return (k_hbm, v_hbm) if step == 0 else tuple(slots.at[way, (step - 1) % DEPTH, which] for which in range(2))

    def send(way, step):
        """The copies that pass the block of ``step`` on, to be attended to by the neighbour in the next."""
        return [
            pltpu.make_async_remote_copy(
                held(way, step)[which],
                slots.at[way, step % DEPTH, which],
                sent.at[way, which],
                arrived.at[way, step % DEPTH, which],
                device_id=(neighbours[way],),
                device_id_type=pl.DeviceIdType.MESH,
            )
            for which in ((0, 1) if step < HALFWAY - 1 else (way,))
        ]

    def attend(rows, keys_ref, values_ref, *, first):
        """Let ``rows`` of the queries attend to a block; the ``first`` begins m, l and acc."""
        scores = jax.lax.dot_general(
            q_scaled_ref[rows, :], keys_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        m_new = jnp.tile(jnp.max(scores, axis=1, keepdims=True), (1, LANES))
        if not first:
            m_new = jnp.maximum(m_ref[rows, :], m_new)
        p = jnp.exp2(scores - jnp.tile(m_new, (1, SHARD // LANES)))
        l_new = _sum_lanewise(p)
        acc_new = jnp.dot(p.astype(values_ref.dtype), values_ref[...], preferred_element_type=jnp.float32)
        if not first:
            rescale = jnp.exp2(m_ref[rows, :] - m_new)
            l_new += rescale * l_ref[rows, :]
            acc_new += rescale * acc_ref[rows, :]
        m_ref[rows, :], l_ref[rows, :], acc_ref[rows, :] = m_new, l_new, acc_new

    def attended(step):
        """The blocks that this chip attends to in ``step``; in the first it waits for what it fetched."""
        if step == 0:
            for copy in own:
                copy.wait()
            q_scaled_ref[...] = (q_ref[...].astype(jnp.float32) * (LOG2E * HEAD_DIM**-0.5)).astype(q_ref.dtype)
            return [(k_ref, v_ref)]
        if step == HALFWAY:
            return [(held(0, step)[0], held(1, step)[1])]
        return [held(way, step) for way in ways]

    own = [
        pltpu.make_async_copy(source, target, fetched.at[which])
        for which, (source, target) in enumerate(((q_hbm, q_ref), (k_hbm, k_ref), (v_hbm, v_ref)))
    ]
    for copy in own:
        copy.start()
    _meet(neighbours)
    for step in range(HALFWAY + 1):
        if DEPTH <= step < HALFWAY:
            for way in ways:
                pl.semaphore_wait(free.at[way], 1)
        copies = [copy for way in ways for copy in send(way, step)] if step < HALFWAY else []
        for copy in copies:
            copy.start()
        for block in attended(step):
            for start in range(0, QUERIES, BQ):
                attend(slice(start, start + BQ), *block, first=step == 0)
        for copy in copies:
            copy.wait()
        if 1 <= step <= HALFWAY - DEPTH:
            for way in ways:
                sender = neighbours[1 - way]
                pl.semaphore_signal(free.at[way], 1, device_id=(sender,), device_id_type=pl.DeviceIdType.MESH)
    o_ref[...] = (acc_ref[...] / jnp.sum(l_ref[...], axis=1, keepdims=True)).astype(o_ref.dtype)


def _shard(q, k, v):
    """One chip: q bfloat16[HEADS, SHARD, HEAD_DIM], k, v bfloat16[SHARD, HEAD_DIM] -> as q."""
    in_hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    out = pl.pallas_call(
        _attend,
        out_shape=jax.ShapeDtypeStruct((QUERIES, HEAD_DIM), q.dtype),
        in_specs=[in_hbm] * 3,
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[
            pltpu.VMEM((QUERIES, HEAD_DIM), q.dtype),
            pltpu.VMEM((SHARD, HEAD_DIM), k.dtype),
            pltpu.VMEM((SHARD, HEAD_DIM), v.dtype),
            pltpu.VMEM((2, DEPTH, 2, SHARD, HEAD_DIM), k.dtype),
            pltpu.VMEM((QUERIES, HEAD_DIM), q.dtype),
            pltpu.VMEM((QUERIES, LANES), jnp.float32),
            pltpu.VMEM((QUERIES, LANES), jnp.float32),
            pltpu.VMEM((QUERIES, HEAD_DIM), jnp.float32),
            pltpu.SemaphoreType.DMA((3,)),
            pltpu.SemaphoreType.DMA((2, 2)),
            pltpu.SemaphoreType.DMA((2, DEPTH, 2)),
            pltpu.SemaphoreType.REGULAR((2,)),
        ],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
    )(q.reshape(QUERIES, HEAD_DIM), k, v)
    return out.reshape(q.shape)


def kernel_fn(q, k, v):
    """Attend: q bfloat16[HEADS, SEQ, HEAD_DIM], k, v bfloat16[SEQ, HEAD_DIM], by sequence over the chips -> as q."""
    queries, keys = P(None, "chip"), P("chip")
    return jax.shard_map(_shard, in_specs=(queries, keys, keys), out_specs=queries, check_vma=False)(q, k, v)


def reference_fn(q, k, v):
    """The same in plain jax.numpy, in the problem's own dtypes."""
    scores = jnp.einsum("hqd,kd->hqk", q, k, preferred_element_type=jnp.float32) * (HEAD_DIM**-0.5)
    weights = jax.nn.softmax(scores, axis=2)
    return jnp.einsum("hqk,kd->hqd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32).astype(q.dtype)


def generate_inputs(key):
    """Standard normal q, k and v."""
    q, k, v = jax.random.split(key, 3)
    return (
        jax.random.normal(q, (HEADS, SEQ, HEAD_DIM), jnp.bfloat16),
        jax.random.normal(k, (SEQ, HEAD_DIM), jnp.bfloat16),
        jax.random.normal(v, (SEQ, HEAD_DIM), jnp.bfloat16),
    )


def compute_flops():
    """Useful FLOPs: two products of every query with every key or value."""
    return 2 * 2 * HEADS * SEQ * SEQ * HEAD_DIM


def get_tiling_meta():
    """The mesh and where the inputs are; then what the author believes of one chip."""
    row_bytes = HEAD_DIM * 2
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [[None, "chip"], ["chip"], ["chip"]],
        "grid": [1],
        # The compiler keeps the rest in registers and their spills.
        "buffers": [
            {"name": "q", "size_bytes": QUERIES * row_bytes, "double_buffered": False},
            {"name": "k", "size_bytes": SHARD * row_bytes, "double_buffered": False},
            {"name": "v", "size_bytes": SHARD * row_bytes, "double_buffered": False},
            {"name": "o", "size_bytes": QUERIES * row_bytes, "double_buffered": False},
            {"name": "slots", "size_bytes": 4 * DEPTH * SHARD * row_bytes, "double_buffered": False},
        ],
        "inputs": [
            {"name": "q", "size_bytes": QUERIES * row_bytes, "re_reads": 1},
            {"name": "k", "size_bytes": SHARD * row_bytes, "re_reads": 3},
            {"name": "v", "size_bytes": SHARD * row_bytes, "re_reads": 3},
        ],
        "outputs": [{"name": "o", "size_bytes": QUERIES * row_bytes, "re_reads": 1}],
        "vreg_estimate_bytes": BQ * SHARD * 4,
    }
