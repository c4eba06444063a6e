"""Split-KV decoding on the four chips of a TPU v5e 2x2 slice. This is the file that you edit.

One query token of 16 heads attends to a context of 32768 keys: q bfloat16[16, 128]; k, v bfloat16[16, 32768, 128],
whose sequence is sharded over the four chips (each holds 8192 consecutive keys of every head). The result is
softmax(q k^T / sqrt(128)) v, bfloat16[16, 128].

Every chip attends to its own keys and keeps, per head, the unnormalised output, the maximum m of its scores and the
sum l of their exponentials. The chips then agree on the largest maximum, and add up outputs and sums scaled to it.
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

BKV = 2048


def _attend_block(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref):
    """One (head, block of keys) step of the online softmax; the outputs stay in VMEM for all blocks of a head."""

    @pl.when(pl.program_id(1) == 0)
    def _start():
        o_ref[...] = jnp.zeros_like(o_ref)
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)

    scores = jax.lax.dot_general(q_ref[0], k_ref[0], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32) * (
        HEAD_DIM**-0.5
    )
    m_new = jnp.maximum(m_ref[0], jnp.max(scores, axis=1, keepdims=True))
    p = jnp.exp(scores - m_new[:, :1])
    rescale = jnp.exp(m_ref[0] - m_new)
    l_ref[0] = rescale * l_ref[0] + jnp.sum(p, axis=1, keepdims=True)
    o_ref[0] = rescale * o_ref[0] + jnp.dot(p.astype(v_ref.dtype), v_ref[0], preferred_element_type=jnp.float32)
    m_ref[0] = m_new


def _attend_shard(q, k, v):
    """One chip: q bfloat16[HEADS, 1, HEAD_DIM], k, v bfloat16[HEADS, SHARD, HEAD_DIM] -> o, m, l, m and l lane-wide."""
    row = pl.BlockSpec((1, 1, HEAD_DIM), lambda h, j: (h, 0, 0))
    keys = pl.BlockSpec((1, BKV, HEAD_DIM), lambda h, j: (h, j, 0))
    return pl.pallas_call(
        _attend_block,
        out_shape=[jax.ShapeDtypeStruct((HEADS, 1, HEAD_DIM), jnp.float32)] * 3,
        grid=(HEADS, SHARD // BKV),
        in_specs=[row, keys, keys],
        out_specs=[row, row, row],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
    )(q, k, v)


def _decode_shard(q, k, v):
    """What one chip does: its own keys, then the stable log-sum-exp over all chips."""
    o, m, total = _attend_shard(q[:, None, :], k, v)
    o, m, total = jax.lax.all_gather(jnp.stack([o, m, total]), "chip", axis=1)
    scale = jnp.exp(m - jnp.max(m, axis=0))
    return (jnp.sum(o * scale, axis=0) / jnp.sum(total * scale, axis=0))[:, 0, :].astype(q.dtype)


def kernel_fn(q, k, v):
    """Attend: q bfloat16[HEADS, HEAD_DIM], k, v bfloat16[HEADS, CONTEXT, HEAD_DIM] -> bfloat16[HEADS, HEAD_DIM]."""
    keys = P(None, "chip", None)
    return jax.shard_map(_decode_shard, in_specs=(P(), keys, keys), out_specs=P(), check_vma=False)(q, k, v)


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
        "grid": [HEADS, SHARD // BKV],
        # The compiler keeps q and the small results in VMEM for the kernel, as none of its buffers.
        "buffers": [
            {"name": "k", "size_bytes": BKV * HEAD_DIM * 2, "double_buffered": True},
            {"name": "v", "size_bytes": BKV * HEAD_DIM * 2, "double_buffered": True},
        ],
        "inputs": [
            {"name": "q", "size_bytes": HEADS * HEAD_DIM * 2, "re_reads": 1},
            {"name": "k", "size_bytes": shard_bytes, "re_reads": 1},
            {"name": "v", "size_bytes": shard_bytes, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": HEADS * HEAD_DIM * 2, "re_reads": 1}],
        "vreg_estimate_bytes": BKV * 4,
    }
