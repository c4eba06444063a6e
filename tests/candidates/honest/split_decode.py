"""Honest: decoding with the keys sharded over four chips; XLA's collectives combine what the chips found."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "split_decode"
PROBLEM_DESCRIPTION = "decode, 1 token, 8 heads x 128, context 2048 sharded over 4 chips, bfloat16"

CHIPS, HEADS, CONTEXT, HEAD_DIM = 4, 8, 2048, 128
SHARD = CONTEXT // CHIPS


def _attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref):
    scores = jax.lax.dot_general(q_ref[0], k_ref[0], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32) * (
        HEAD_DIM**-0.5
    )
    m = jnp.max(scores, axis=1, keepdims=True)
    p = jnp.exp(scores - m)
    o_ref[0] = jnp.dot(p.astype(v_ref.dtype), v_ref[0], preferred_element_type=jnp.float32)
    m_ref[0] = jnp.broadcast_to(m, (1, HEAD_DIM))
    l_ref[0] = jnp.broadcast_to(jnp.sum(p, axis=1, keepdims=True), (1, HEAD_DIM))


def _shard(q, k, v):
    row = pl.BlockSpec((1, 1, HEAD_DIM), lambda h: (h, 0, 0))
    keys = pl.BlockSpec((1, SHARD, HEAD_DIM), lambda h: (h, 0, 0))
    o, m, total = pl.pallas_call(
        _attend,
        out_shape=[jax.ShapeDtypeStruct((HEADS, 1, HEAD_DIM), jnp.float32)] * 3,
        grid=(HEADS,),
        in_specs=[row, keys, keys],
        out_specs=[row, row, row],
    )(q[:, None, :], k, v)
    scale = jnp.exp(m - jax.lax.pmax(m, "chip"))
    o, total = jax.lax.psum(o * scale, "chip"), jax.lax.psum(total * scale, "chip")
    return (o / total)[:, 0, :].astype(q.dtype)


def kernel_fn(q, k, v):
    keys = P(None, "chip", None)
    return jax.shard_map(_shard, in_specs=(P(), keys, keys), out_specs=P(), check_vma=False)(q, k, v)


def reference_fn(q, k, v):
    scores = jnp.einsum("hd,hkd->hk", q, k, preferred_element_type=jnp.float32) * HEAD_DIM**-0.5
    weights = jax.nn.softmax(scores, axis=1)
    return jnp.einsum("hk,hkd->hd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32).astype(q.dtype)


def generate_inputs(key):
    shapes = ((HEADS, HEAD_DIM), (HEADS, CONTEXT, HEAD_DIM), (HEADS, CONTEXT, HEAD_DIM))
    keys = jax.random.split(key, 3)
    return tuple(jax.random.normal(part, shape, jnp.bfloat16) for part, shape in zip(keys, shapes, strict=True))


def compute_flops():
    return 2 * 2 * HEADS * CONTEXT * HEAD_DIM


def get_tiling_meta():
    block = SHARD * HEAD_DIM * 2
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [[], [None, "chip"], [None, "chip"]],
        "grid": [HEADS],
        "buffers": [
            {"name": "k", "size_bytes": block, "double_buffered": True},
            {"name": "v", "size_bytes": block, "double_buffered": True},
        ],
        "inputs": [
            {"name": "q", "size_bytes": HEADS * HEAD_DIM * 2, "re_reads": 1},
            {"name": "k", "size_bytes": HEADS * block, "re_reads": 1},
            {"name": "v", "size_bytes": HEADS * block, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": HEADS * HEAD_DIM * 2, "re_reads": 1}],
        "vreg_estimate_bytes": SHARD * 4,
    }
