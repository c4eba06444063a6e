"""Causal attention for one head on a CPU, block by block, in plain JAX. To be measured: `--on cpu`.

q, k, v: float32[128, 64]; the result is softmax(q k^T / sqrt(64), causal) v, float32[128, 64].

Query blocks are walked one after the other; for each, key blocks are folded into a running maximum, a running sum and
the unnormalised output (the online softmax of FlashAttention), so that a block of scores stays in the cache.
"""

import jax
import jax.numpy as jnp

KERNEL_NAME = "cpu_causal_attention"
PROBLEM_DESCRIPTION = "causal attention forward, 1 head, q k v of float32[128, 64], on a CPU"

SEQ = 128
HEAD_DIM = 64

BQ = 64
"""Rows of a query block: 16 to 512, a divisor of SEQ."""
BKV = 64
"""Rows of a key block: 16 to 512, a divisor of SEQ."""
SKIP = False
"""Leave out the key blocks that lie wholly after the last query of a block."""
UNROLL = 1
"""Key blocks per turn of the inner loop."""
TRANSPOSE = False
"""Transpose the keys once, before the loops."""
SCALE_Q = False
"""Scale the queries once, in place of every block of scores."""


def kernel_fn(q, k, v):
    """Attend: q, k, v float32[SEQ, HEAD_DIM] -> float32[SEQ, HEAD_DIM]."""
    scale = HEAD_DIM**-0.5
    q = q * scale if SCALE_Q else q
    keys = k.T.reshape(HEAD_DIM, SEQ // BKV, BKV).transpose(1, 0, 2) if TRANSPOSE else k.reshape(-1, BKV, HEAD_DIM)
    values = v.reshape(-1, BKV, HEAD_DIM)

    def query_block(i, block):
        def fold(j, state):
            m, total, acc = state
            scores = block @ keys[j] if TRANSPOSE else block @ keys[j].T
            scores = scores if SCALE_Q else scores * scale
            rows = i * BQ + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
            columns = j * BKV + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
            scores = jnp.where(columns <= rows, scores, -1e30)
            new = jnp.maximum(m, scores.max(axis=1, keepdims=True))
            p = jnp.exp(scores - new)
            rescale = jnp.exp(m - new)
            return new, rescale * total + p.sum(axis=1, keepdims=True), rescale * acc + p @ values[j]

        start = (jnp.full((BQ, 1), -1e30), jnp.zeros((BQ, 1)), jnp.zeros((BQ, HEAD_DIM)))
        if SKIP:
            _, total, acc = jax.lax.fori_loop(0, ((i + 1) * BQ - 1) // BKV + 1, fold, start)
        else:
            _, total, acc = jax.lax.fori_loop(0, SEQ // BKV, fold, start, unroll=UNROLL)
        return acc / total

    blocks = q.reshape(-1, BQ, HEAD_DIM)
    return jax.lax.map(lambda args: query_block(*args), (jnp.arange(len(blocks)), blocks)).reshape(SEQ, HEAD_DIM)


def reference_fn(q, k, v):
    """The same in plain jax.numpy."""
    scores = (q @ k.T) * (HEAD_DIM**-0.5)
    rows = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    columns = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    return jax.nn.softmax(jnp.where(columns <= rows, scores, -jnp.inf), axis=1) @ v


def generate_inputs(key):
    """Three standard normal float32[SEQ, HEAD_DIM] arrays."""
    return tuple(jax.random.normal(part, (SEQ, HEAD_DIM), jnp.float32) for part in jax.random.split(key, 3))


def compute_flops():
    """Useful FLOPs: two products over the lower triangle, diagonal included."""
    return 2 * 2 * (SEQ * (SEQ + 1) // 2) * HEAD_DIM


def get_tiling_meta():
    """What the author believes about blocks and traffic."""
    row_bytes = HEAD_DIM * 4
    return {
        "grid": [SEQ // BQ, SEQ // BKV],
        "buffers": [
            {"name": "scores", "size_bytes": BQ * BKV * 4, "double_buffered": False},
            {"name": "acc", "size_bytes": BQ * row_bytes, "double_buffered": False},
        ],
        "inputs": [{"name": name, "size_bytes": SEQ * row_bytes, "re_reads": 1} for name in ("q", "k", "v")],
        "outputs": [{"name": "o", "size_bytes": SEQ * row_bytes, "re_reads": 1}],
        "vreg_estimate_bytes": 0,
    }
