"""Decoding against a paged cache, as one writes it first: one token of 8 sequences, 32 query and 8 key heads x 128.

A step of the grid reads one page of one key head, which the page table names, and keeps the running softmax of the
query heads that share it in VMEM.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "paged_decode_first"
PROBLEM_DESCRIPTION = "decode, 8 sequences of 2048, 32 query and 8 key heads x 128, pages of 64, bfloat16"

BATCH, Q_HEADS, KV_HEADS, HEAD_DIM = 8, 32, 8, 128
CONTEXT, PAGE = 2048, 64

GROUP = Q_HEADS // KV_HEADS
PAGES = CONTEXT // PAGE
POOL = BATCH * PAGES


def _attend(table, q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
    page = pl.program_id(2)

    @pl.when(page == 0)
    def _start():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    scores = jax.lax.dot_general(
        q_ref[0, 0], k_ref[0, 0], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
    ) * (HEAD_DIM**-0.5)
    m_new = jnp.maximum(m_ref[...], jnp.max(scores, axis=1, keepdims=True))
    p = jnp.exp(scores - m_new)
    rescale = jnp.exp(m_ref[...] - m_new)
    l_ref[...] = rescale * l_ref[...] + jnp.sum(p, axis=1, keepdims=True)
    acc_ref[...] = rescale * acc_ref[...] + jnp.dot(
        p.astype(v_ref.dtype), v_ref[0, 0], preferred_element_type=jnp.float32
    )
    m_ref[...] = m_new

    @pl.when(page == PAGES - 1)
    def _finish():
        o_ref[0, 0] = (acc_ref[...] / l_ref[...]).astype(o_ref.dtype)


def kernel_fn(q, k, v, table):
    """q as the result, bfloat16[BATCH, Q_HEADS, HEAD_DIM], k, v [KV_HEADS, POOL, PAGE, HEAD_DIM], table int32."""
    o = pl.pallas_call(
        _attend,
        out_shape=jax.ShapeDtypeStruct((BATCH, KV_HEADS, GROUP, HEAD_DIM), q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(BATCH, KV_HEADS, PAGES),
            in_specs=[
                pl.BlockSpec((1, 1, GROUP, HEAD_DIM), lambda b, h, p, table: (b, h, 0, 0)),
                pl.BlockSpec((1, 1, PAGE, HEAD_DIM), lambda b, h, p, table: (h, table[b, p], 0, 0)),
                pl.BlockSpec((1, 1, PAGE, HEAD_DIM), lambda b, h, p, table: (h, table[b, p], 0, 0)),
            ],
            out_specs=pl.BlockSpec((1, 1, GROUP, HEAD_DIM), lambda b, h, p, table: (b, h, 0, 0)),
            scratch_shapes=[
                pltpu.VMEM((GROUP, 1), jnp.float32),
                pltpu.VMEM((GROUP, 1), jnp.float32),
                pltpu.VMEM((GROUP, HEAD_DIM), jnp.float32),
            ],
        ),
    )(table, q.reshape(BATCH, KV_HEADS, GROUP, HEAD_DIM), k, v)
    return o.reshape(BATCH, Q_HEADS, HEAD_DIM)


def reference_fn(q, k, v, table):
    """Gather each sequence's pages in order, then plain attention."""

    def gathered(pool):
        return jnp.moveaxis(pool[:, table], 1, 0).reshape(BATCH, KV_HEADS, CONTEXT, HEAD_DIM)

    grouped = q.reshape(BATCH, KV_HEADS, GROUP, HEAD_DIM)
    scores = jnp.einsum("bhgd,bhkd->bhgk", grouped, gathered(k), preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores * (HEAD_DIM**-0.5), axis=-1).astype(v.dtype)
    o = jnp.einsum("bhgk,bhkd->bhgd", weights, gathered(v), preferred_element_type=jnp.float32)
    return o.reshape(BATCH, Q_HEADS, HEAD_DIM).astype(q.dtype)


def generate_inputs(key):
    """Standard normal q and pools, permuted pages."""
    q, k, v, table = jax.random.split(key, 4)
    pool = (KV_HEADS, POOL, PAGE, HEAD_DIM)
    return (
        jax.random.normal(q, (BATCH, Q_HEADS, HEAD_DIM), jnp.bfloat16),
        jax.random.normal(k, pool, jnp.bfloat16),
        jax.random.normal(v, pool, jnp.bfloat16),
        jax.random.permutation(table, POOL).reshape(BATCH, PAGES).astype(jnp.int32),
    )


def compute_flops():
    """Useful FLOPs: two products of every key with each query head that reads it."""
    return 2 * 2 * BATCH * Q_HEADS * CONTEXT * HEAD_DIM


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    page, pool, query = PAGE * HEAD_DIM * 2, KV_HEADS * POOL * PAGE * HEAD_DIM * 2, BATCH * Q_HEADS * HEAD_DIM * 2
    return {
        "grid": [BATCH, KV_HEADS, PAGES],
        "buffers": [
            {"name": "k", "size_bytes": page, "double_buffered": True},
            {"name": "v", "size_bytes": page, "double_buffered": True},
        ],
        "inputs": [
            {"name": "q", "size_bytes": query, "re_reads": 1},
            {"name": "k", "size_bytes": pool, "re_reads": 1},
            {"name": "v", "size_bytes": pool, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": query, "re_reads": 1}],
        "vreg_estimate_bytes": GROUP * PAGE * 4,
    }
