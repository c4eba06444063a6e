"""Mixture of experts with SwiGLU: x bfloat16[512, 1024] through two of eight experts per token -> bfloat16[512, 1024].

An expert is (silu(x gate) * (x up)) down, gate and up bfloat16[1024, 1024], down bfloat16[1024, 1024]; experts
int32[512, 2] and shares float32[512, 2] say which two a token takes and how they weigh. Fetching 48 MiB of weights
bounds it as long as the MXUs keep up. XLA numbers the tokens of each expert, and the kernel gathers ROWS of them at a
time by a product with a matrix of ones and zeros, and adds their results to the tokens' rows by another. Mutation to
try next: rows of 64, of which fewer are empty.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "moe_swiglu"
PROBLEM_DESCRIPTION = "512 tokens of 1024 through the best two of eight SwiGLU experts with 1024 hidden, bfloat16"

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN = 512, 1024, 1024, 8, 2

BH = 1024
ROWS = 128


def _product(a, b):
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _experts(count, x_ref, gate_ref, up_ref, down_ref, share_ref, row_ref, column_ref, o_ref, acc_ref):
    e, h = pl.program_id(0), pl.program_id(1)

    @pl.when((e == 0) & (h == 0))
    def _start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.loop(0, pl.cdiv(count[e], ROWS))
    def _tile(t):
        taken = row_ref[0] == t * ROWS + jax.lax.broadcasted_iota(jnp.int32, (ROWS, TOKENS), 0)
        given = column_ref[0] == t * ROWS + jax.lax.broadcasted_iota(jnp.int32, (TOKENS, ROWS), 1)
        x = _product(taken.astype(x_ref.dtype), x_ref[...]).astype(x_ref.dtype)
        gate, up = _product(x, gate_ref[0]), _product(x, up_ref[0])
        hidden = (gate * jax.nn.sigmoid(gate) * up).astype(x.dtype)
        result = _product(hidden, down_ref[0]).astype(x.dtype)
        acc_ref[...] += share_ref[0] * _product(given.astype(x.dtype), result)

    @pl.when((e == EXPERTS - 1) & (h == HIDDEN // BH - 1))
    def _finish():
        o_ref[...] = acc_ref[...].astype(o_ref.dtype)


def kernel_fn(x, gate, up, down, experts, shares):
    """x bfloat16[TOKENS, WIDTH], weights bfloat16[EXPERTS, ., .], choices [TOKENS, CHOSEN] -> like x."""
    takes = experts == jnp.arange(EXPERTS)[:, None, None]
    share = jnp.sum(jnp.where(takes, shares, 0), axis=2, keepdims=True)
    own = jnp.any(takes, axis=2)
    number = jnp.where(own, jnp.cumsum(own, axis=1) - 1, -1).astype(jnp.int32)  # of a token among an expert's own
    return pl.pallas_call(
        _experts,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(EXPERTS, HIDDEN // BH),
            in_specs=[
                pl.BlockSpec((TOKENS, WIDTH), lambda e, h, count: (0, 0)),
                pl.BlockSpec((1, WIDTH, BH), lambda e, h, count: (e, 0, h)),
                pl.BlockSpec((1, WIDTH, BH), lambda e, h, count: (e, 0, h)),
                pl.BlockSpec((1, BH, WIDTH), lambda e, h, count: (e, h, 0)),
                pl.BlockSpec((1, TOKENS, 1), lambda e, h, count: (e, 0, 0)),
                pl.BlockSpec((1, 1, TOKENS), lambda e, h, count: (e, 0, 0)),
                pl.BlockSpec((1, TOKENS, 1), lambda e, h, count: (e, 0, 0)),
            ],
            out_specs=pl.BlockSpec((TOKENS, WIDTH), lambda e, h, count: (0, 0)),
            scratch_shapes=[pltpu.VMEM((TOKENS, WIDTH), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=32 << 20),
    )(jnp.sum(own, axis=1, dtype=jnp.int32), x, gate, up, down, share, number[:, None], number[..., None])


def reference_fn(x, gate, up, down, experts, shares):
    """The same in plain jax.numpy: all experts for all tokens, their hidden values and results rounded to bfloat16."""
    gated = jnp.einsum("td,edh->eth", x, gate, preferred_element_type=jnp.float32)
    raised = jnp.einsum("td,edh->eth", x, up, preferred_element_type=jnp.float32)
    hidden = (gated * jax.nn.sigmoid(gated) * raised).astype(x.dtype)
    results = jnp.einsum("eth,ehd->etd", hidden, down, preferred_element_type=jnp.float32)
    share = jnp.sum(jnp.where(experts == jnp.arange(EXPERTS)[:, None, None], shares, 0), axis=2, keepdims=True)
    return jnp.sum(results.astype(x.dtype) * share, axis=0).astype(x.dtype)


def generate_inputs(key):
    """Normal x and weights scaled to keep values near 1; two different experts a token, shares that add up to 1."""
    x, gate, up, down, experts, shares = jax.random.split(key, 6)
    first, step = jax.random.randint(experts, (2, TOKENS), 0, EXPERTS - 1)
    share = jax.random.uniform(shares, (TOKENS,), jnp.float32, 0.5, 1.0)

    def weights(key, rows, columns):
        return (jax.random.normal(key, (EXPERTS, rows, columns), jnp.float32) * rows**-0.5).astype(jnp.bfloat16)

    return (
        jax.random.normal(x, (TOKENS, WIDTH), jnp.bfloat16),
        weights(gate, WIDTH, HIDDEN),
        weights(up, WIDTH, HIDDEN),
        weights(down, HIDDEN, WIDTH),
        jnp.stack([first, (first + 1 + step) % EXPERTS], axis=1).astype(jnp.int32),
        jnp.stack([share, 1 - share], axis=1),
    )


def compute_flops():
    """Useful FLOPs: three products for each token and expert it takes."""
    return 3 * 2 * TOKENS * CHOSEN * WIDTH * HIDDEN


def get_tiling_meta():
    """What the author believes about buffers and traffic: XLA keeps all that is small in VMEM."""
    tokens, weights = TOKENS * WIDTH * 2, WIDTH * BH * 2
    return {
        "grid": [EXPERTS, HIDDEN // BH],
        "buffers": [
            {"name": "gate", "size_bytes": weights, "double_buffered": True},
            {"name": "up", "size_bytes": weights, "double_buffered": True},
            {"name": "down", "size_bytes": weights, "double_buffered": True},
            {"name": "o", "size_bytes": tokens, "double_buffered": False},
            {"name": "acc", "size_bytes": TOKENS * WIDTH * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": tokens, "re_reads": 1},
            {"name": "weights", "size_bytes": 3 * EXPERTS * WIDTH * HIDDEN * 2, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": tokens, "re_reads": 1}],
        "vreg_estimate_bytes": 3 * ROWS * BH * 4,
    }
