"""Cross entropy of a linear layer, as one writes it first: x bfloat16[2048, 1024], w bfloat16[1024, 8192] and labels.

The grid walks rows (outer) and words (inner). The largest logit of a row, the sum of its exponentials and the logit of
its label are kept in VMEM, so that the logits are never held whole.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "cross_entropy"
PROBLEM_DESCRIPTION = "cross entropy of bfloat16[2048, 1024] times bfloat16[1024, 8192], per row, float32 out"

ROWS, WIDTH, WORDS = 2048, 1024, 8192

BR = 128
BW = 256


def _loss(x_ref, w_ref, label_ref, o_ref, m_ref, l_ref, t_ref):
    j = pl.program_id(1)

    @pl.when(j == 0)
    def _start():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        t_ref[...] = jnp.zeros_like(t_ref)

    logits = jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    words = j * BW + jax.lax.broadcasted_iota(jnp.int32, (BR, BW), 1)
    t_ref[...] += jnp.sum(jnp.where(words == label_ref[...], logits, 0.0), axis=1, keepdims=True)
    m_new = jnp.maximum(m_ref[...], jnp.max(logits, axis=1, keepdims=True))
    p = jnp.exp(logits - m_new)
    l_ref[...] = jnp.exp(m_ref[...] - m_new) * l_ref[...] + jnp.sum(p, axis=1, keepdims=True)
    m_ref[...] = m_new

    @pl.when(j == pl.num_programs(1) - 1)
    def _finish():
        o_ref[...] = jnp.log(l_ref[...]) + m_ref[...] - t_ref[...]


def kernel_fn(x, w, labels):
    """x bfloat16[ROWS, WIDTH], w bfloat16[WIDTH, WORDS], labels int32[ROWS] -> float32[ROWS]."""
    losses = pl.pallas_call(
        _loss,
        out_shape=jax.ShapeDtypeStruct((ROWS, 1), jnp.float32),
        grid=(ROWS // BR, WORDS // BW),
        in_specs=[
            pl.BlockSpec((BR, WIDTH), lambda i, j: (i, 0)),
            pl.BlockSpec((WIDTH, BW), lambda i, j: (0, j)),
            pl.BlockSpec((BR, 1), lambda i, j: (i, 0)),
        ],
        out_specs=pl.BlockSpec((BR, 1), lambda i, j: (i, 0)),
        scratch_shapes=[
            pltpu.VMEM((BR, 1), jnp.float32),
            pltpu.VMEM((BR, 1), jnp.float32),
            pltpu.VMEM((BR, 1), jnp.float32),
        ],
    )(x, w, labels.reshape(ROWS, 1))
    return losses.reshape(ROWS)


def reference_fn(x, w, labels):
    """The same in plain jax.numpy."""
    logits = jnp.dot(x, w, preferred_element_type=jnp.float32)
    chosen = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(logits, axis=1) - chosen


def generate_inputs(key):
    """Standard normal x, w so that logits are about 1, labels anywhere."""
    x, w, labels = jax.random.split(key, 3)
    return (
        jax.random.normal(x, (ROWS, WIDTH), jnp.bfloat16),
        (jax.random.normal(w, (WIDTH, WORDS), jnp.float32) * WIDTH**-0.5).astype(jnp.bfloat16),
        jax.random.randint(labels, (ROWS,), 0, WORDS, jnp.int32),
    )


def compute_flops():
    """Useful FLOPs: the product alone."""
    return 2 * ROWS * WIDTH * WORDS


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    lanes = 128 * 4
    return {
        "grid": [ROWS // BR, WORDS // BW],
        "buffers": [
            {"name": "x", "size_bytes": BR * WIDTH * 2, "double_buffered": True},
            {"name": "w", "size_bytes": WIDTH * BW * 2, "double_buffered": True},
        ],
        "inputs": [
            {"name": "x", "size_bytes": ROWS * WIDTH * 2, "re_reads": 1},
            {"name": "w", "size_bytes": WIDTH * WORDS * 2, "re_reads": ROWS // BR},
        ],
        "outputs": [{"name": "losses", "size_bytes": ROWS * lanes, "re_reads": 1}],
        "vreg_estimate_bytes": BR * BW * 4,
    }
