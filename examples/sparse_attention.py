"""Attention within packed documents, capped logits: q, k, v bfloat16[4, 2048, 128], documents int32[2048] -> like q.

A token attends to the tokens of its own document up to itself; a logit x becomes 30 tanh(x / 30). With short documents
most blocks of scores are masked, and the vector units with their exponentials and tangents bound what is left, before
the MXUs do. For each block of queries XLA computes the first block of keys that has one of its documents, and nothing
before it is fetched or computed. All heads share a step, and so a mask. Mutation to try next: no mask where a block has
one document.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "sparse_attention"
PROBLEM_DESCRIPTION = "causal attention within packed documents, logits capped at 30, 4 heads, bfloat16[2048, 128]"

HEADS, SEQ, HEAD_DIM = 4, 2048, 128
CAP = 30.0
LENGTHS = (128, 128, 192, 256, 256, 320, 320, 448)  # of the documents, in any order

BQ, BKV = 256, 256


def _first_blocks(documents):
    """For each block of queries the block of keys where the document of its first one begins: int32[SEQ // BQ]."""
    return (jnp.searchsorted(documents, documents[::BQ], side="left", method="compare_all") // BKV).astype(jnp.int32)


def _attend(first, q_ref, k_ref, v_ref, rows_ref, columns_ref, o_ref, m_ref, l_ref, acc_ref):
    i, j = pl.program_id(0), pl.program_id(1)
    block = first[i] + j

    @pl.when(j == 0)
    def _start():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when(block * BKV < (i + 1) * BQ)
    def _block():
        row = i * BQ + jax.lax.broadcasted_iota(jnp.int32, (BQ, BKV), 0)
        column = block * BKV + jax.lax.broadcasted_iota(jnp.int32, (BQ, BKV), 1)
        attended = (column <= row) & (rows_ref[...] == columns_ref[...])
        for h in range(HEADS):
            scores = jax.lax.dot_general(
                q_ref[h], k_ref[h], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
            ) * (HEAD_DIM**-0.5)
            scores = CAP * jnp.tanh(scores / CAP)
            # Capped logits are at least -CAP, so that a row without any attended key so far has a finite maximum.
            top = jnp.maximum(m_ref[h], jnp.max(jnp.where(attended, scores, -CAP), axis=1, keepdims=True))
            p = jnp.where(attended, jnp.exp(scores - top), 0)
            rescale = jnp.exp(m_ref[h] - top)
            l_ref[h] = rescale * l_ref[h] + jnp.sum(p, axis=1, keepdims=True)
            acc_ref[h] = rescale * acc_ref[h] + jnp.dot(
                p.astype(v_ref.dtype), v_ref[h], preferred_element_type=jnp.float32
            )
            m_ref[h] = top

    @pl.when(j == pl.num_programs(1) - 1)
    def _finish():
        o_ref[...] = (acc_ref[...] / l_ref[...]).astype(o_ref.dtype)


def kernel_fn(q, k, v, documents):
    """q, k, v bfloat16[HEADS, SEQ, HEAD_DIM], documents int32[SEQ] -> bfloat16[HEADS, SEQ, HEAD_DIM]."""

    def block(i, j, first):
        """The last block that a block of queries needs stays where there are no more."""
        return jnp.minimum(first[i] + j, ((i + 1) * BQ - 1) // BKV)

    queries = pl.BlockSpec((HEADS, BQ, HEAD_DIM), lambda i, j, first: (0, i, 0))
    keys = pl.BlockSpec((HEADS, BKV, HEAD_DIM), lambda i, j, first: (0, block(i, j, first), 0))
    return pl.pallas_call(
        _attend,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(SEQ // BQ, SEQ // BKV),
            in_specs=[
                queries,
                keys,
                keys,
                pl.BlockSpec((BQ, 1), lambda i, j, first: (i, 0)),
                pl.BlockSpec((1, BKV), lambda i, j, first: (0, block(i, j, first))),
            ],
            out_specs=queries,
            scratch_shapes=[
                pltpu.VMEM((HEADS, BQ, 1), jnp.float32),
                pltpu.VMEM((HEADS, BQ, 1), jnp.float32),
                pltpu.VMEM((HEADS, BQ, HEAD_DIM), jnp.float32),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
    )(_first_blocks(documents), q, k, v, documents[:, None], documents[None])


def reference_fn(q, k, v, documents):
    """The same in plain jax.numpy."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32) * (HEAD_DIM**-0.5)
    position = jnp.arange(SEQ)
    attended = (position[:, None] >= position) & (documents[:, None] == documents)
    weights = jax.nn.softmax(jnp.where(attended, CAP * jnp.tanh(scores / CAP), -jnp.inf), axis=2)
    return jnp.einsum("hqk,hkd->hqd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32).astype(q.dtype)


def generate_inputs(key):
    """Standard normal q, k, v; documents of LENGTHS in some order, numbered by place."""
    q, k, v, order = jax.random.split(key, 4)
    ends = jnp.cumsum(jax.random.permutation(order, jnp.array(LENGTHS, jnp.int32)))
    documents = jnp.sum(jnp.arange(SEQ, dtype=jnp.int32)[:, None] >= ends, axis=1, dtype=jnp.int32)
    return (*(jax.random.normal(part, (HEADS, SEQ, HEAD_DIM), jnp.bfloat16) for part in (q, k, v)), documents)


def compute_flops():
    """Useful FLOPs: two products over the lower triangle of each document, diagonal included."""
    pairs = sum(length * (length + 1) // 2 for length in LENGTHS)
    return 2 * 2 * HEADS * pairs * HEAD_DIM


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    block, array, lanes = HEADS * HEAD_DIM * 2, HEADS * SEQ * HEAD_DIM * 2, HEADS * 128 * 4
    return {
        "grid": [SEQ // BQ, SEQ // BKV],
        "buffers": [
            {"name": "q", "size_bytes": BQ * block, "double_buffered": True},
            {"name": "k", "size_bytes": BKV * block, "double_buffered": True},
            {"name": "v", "size_bytes": BKV * block, "double_buffered": True},
            {"name": "o", "size_bytes": BQ * block, "double_buffered": True},
            {"name": "m", "size_bytes": BQ * lanes, "double_buffered": False},
            {"name": "l", "size_bytes": BQ * lanes, "double_buffered": False},
            {"name": "acc", "size_bytes": HEADS * BQ * HEAD_DIM * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "q", "size_bytes": array, "re_reads": 1},
            {"name": "k", "size_bytes": array, "re_reads": 1},
            {"name": "v", "size_bytes": array, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": array, "re_reads": 1}],
        "vreg_estimate_bytes": BQ * BKV * 4,
    }
