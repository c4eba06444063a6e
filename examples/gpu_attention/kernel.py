"""Causal flash attention for one head on a GPU, as a Pallas kernel lowered by Triton. To be measured: `--on gpu`.

It has been lowered for CUDA and its values were checked in Pallas's interpreter; it has never run on a GPU.

q, k, v: bfloat16[8192, 128]; the result is softmax(q k^T / sqrt(128), causal) v, bfloat16[8192, 128].

Each program takes one block of queries and walks the key blocks that it attends, with the online softmax of
FlashAttention: running row maximum, row sum and unnormalised output stay in registers.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

KERNEL_NAME = "gpu_causal_attention"
PROBLEM_DESCRIPTION = "causal attention forward, 1 head, q k v of bfloat16[8192, 128], on a GPU"

SEQ = 8192
HEAD_DIM = 128

BQ = 64
"""Rows of a query block, a power of two: 16 to 128."""
BKV = 64
"""Rows of a key block, a power of two: 16 to 128."""
NUM_WARPS = 4
"""Warps of 32 threads per program: 1 to 16, a power of two."""
NUM_STAGES = 2
"""Loads that Triton keeps under way in the loop: 1 to 5."""
SPLIT_DIAGONAL = False
"""Mask only the blocks that the diagonal crosses, in a loop of their own."""


def _attention(q_ref, k_ref, v_ref, o_ref):
    """One block of queries against all key blocks up to the diagonal."""
    first = pl.program_id(0) * BQ
    q = q_ref[...]

    def fold(j, state, masked):
        m, total, acc = state
        k = k_ref[pl.ds(j * BKV, BKV), :]
        scores = jnp.dot(q, k.T, preferred_element_type=jnp.float32) * (HEAD_DIM**-0.5)
        if masked:
            rows = first + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
            columns = j * BKV + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
            scores = jnp.where(columns <= rows, scores, -1e30)
        new = jnp.maximum(m, jnp.max(scores, axis=1))
        p = jnp.exp(scores - new[:, None])
        rescale = jnp.exp(m - new)
        v = v_ref[pl.ds(j * BKV, BKV), :]
        grown = jnp.dot(p.astype(v.dtype), v, preferred_element_type=jnp.float32)
        return new, rescale * total + jnp.sum(p, axis=1), rescale[:, None] * acc + grown

    state = (
        jnp.full((BQ,), -1e30, jnp.float32),
        jnp.zeros((BQ,), jnp.float32),
        jnp.zeros((BQ, HEAD_DIM), jnp.float32),
    )
    end = (first + BQ - 1) // BKV + 1
    start = 0
    if SPLIT_DIAGONAL:
        start = first // BKV
        state = jax.lax.fori_loop(0, start, lambda j, s: fold(j, s, False), state)
    _, total, acc = jax.lax.fori_loop(start, end, lambda j, s: fold(j, s, True), state)
    o_ref[...] = (acc / total[:, None]).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    """Attend: q, k, v bfloat16[SEQ, HEAD_DIM] -> bfloat16[SEQ, HEAD_DIM]."""
    rows = pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i, 0))
    whole = pl.BlockSpec((SEQ, HEAD_DIM), lambda i: (0, 0))
    return pl.pallas_call(
        _attention,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        grid=(SEQ // BQ,),
        in_specs=[rows, whole, whole],
        out_specs=rows,
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(q, k, v)


def reference_fn(q, k, v):
    """The same in plain jax.numpy, in the problem's own dtypes."""
    scores = jnp.einsum("qd,kd->qk", q, k, preferred_element_type=jnp.float32) * (HEAD_DIM**-0.5)
    rows = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    columns = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    weights = jax.nn.softmax(jnp.where(columns <= rows, scores, -jnp.inf), axis=1)
    return jnp.einsum("qk,kd->qd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32).astype(q.dtype)


def generate_inputs(key):
    """Three standard normal bfloat16[SEQ, HEAD_DIM] arrays."""
    return tuple(jax.random.normal(part, (SEQ, HEAD_DIM), jnp.bfloat16) for part in jax.random.split(key, 3))


def compute_flops():
    """Useful FLOPs: two products over the lower triangle, diagonal included."""
    return 2 * 2 * (SEQ * (SEQ + 1) // 2) * HEAD_DIM


def get_tiling_meta():
    """What the author believes about blocks and traffic."""
    whole = SEQ * HEAD_DIM * 2
    return {
        "grid": [SEQ // BQ],
        "buffers": [
            {"name": "q", "size_bytes": BQ * HEAD_DIM * 2, "double_buffered": False},
            {"name": "acc", "size_bytes": BQ * HEAD_DIM * 4, "double_buffered": False},
        ],
        "inputs": [{"name": name, "size_bytes": whole, "re_reads": 1} for name in ("q", "k", "v")],
        "outputs": [{"name": "o", "size_bytes": whole, "re_reads": 1}],
        "vreg_estimate_bytes": BQ * BKV * 4,
    }
