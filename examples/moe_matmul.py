"""Product of a mixture of experts: each row of x bfloat16[8192, 2048] times its expert's of w bfloat16[8, 2048, 2048].

The rows are sorted by expert, sizes int32[8] says how many rows each has. A tile of rows at the edge of an expert belongs
to two of them or more. XLA makes a table of the (expert, tile) pairs that have rows in common, and scalar prefetch
carries it into the kernel, whose grid walks it. First mutation to try: tiles that begin where an expert begins.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "moe_matmul"
PROBLEM_DESCRIPTION = "bfloat16[8192, 2048] times one of eight bfloat16[2048, 2048] by row, rows sorted by expert"

M, K, N, GROUPS = 8192, 2048, 2048, 8

BM = 512
VISITS = M // BM + GROUPS - 1  # at most: each group but the first may share its first tile


def _table(sizes):
    """Where groups begin and end; group and tile of each visit; how many visits there are. All int32."""
    edges = jnp.pad(jnp.cumsum(sizes), (1, 0))
    first = edges[:-1] // BM
    tiles = jnp.where(sizes > 0, (edges[1:] - 1) // BM - first + 1, 0)
    ends = jnp.cumsum(tiles)
    visit = jnp.minimum(jnp.arange(VISITS, dtype=jnp.int32), ends[-1] - 1)  # the last one again where there are fewer
    group = jnp.sum(visit[:, None] >= ends, axis=1, dtype=jnp.int32)
    return edges, group, first[group] + visit - (ends - tiles)[group], ends[-1:]


def _multiply(edges, group, tile, visits, x_ref, w_ref, o_ref):
    v = pl.program_id(0)
    first, end = edges[group[v]], edges[group[v] + 1]

    @pl.when(v < visits[0])
    def _rows():
        row = tile[v] * BM + jax.lax.broadcasted_iota(jnp.int32, (BM, N), 0)
        product = jnp.dot(x_ref[...], w_ref[0], preferred_element_type=jnp.float32).astype(o_ref.dtype)
        o_ref[...] = jnp.where((row >= first) & (row < end), product, o_ref[...])


def kernel_fn(x, w, sizes):
    """x bfloat16[M, K], w bfloat16[GROUPS, K, N], sizes int32[GROUPS] that add up to M -> bfloat16[M, N]."""
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((M, N), x.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(VISITS,),
            in_specs=[
                pl.BlockSpec((BM, K), lambda v, edges, group, tile, visits: (tile[v], 0)),
                pl.BlockSpec((1, K, N), lambda v, edges, group, tile, visits: (group[v], 0, 0)),
            ],
            out_specs=pl.BlockSpec((BM, N), lambda v, edges, group, tile, visits: (tile[v], 0)),
        ),
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=100 << 20),
    )(*_table(sizes), x, w)


def reference_fn(x, w, sizes):
    """The same in plain jax.numpy: every product, of which each row keeps that of its group."""
    group = jnp.sum(jnp.arange(M)[:, None] >= jnp.cumsum(sizes), axis=1)
    products = jnp.einsum("mk,gkn->gmn", x, w, preferred_element_type=jnp.float32)
    return jnp.take_along_axis(products, group[None, :, None], axis=0)[0].astype(x.dtype)


def generate_inputs(key):
    """Standard normal x and w; seven cuts anywhere make eight groups, empty ones among them now and then."""
    x, w, cuts = jax.random.split(key, 3)
    cuts = jnp.sort(jax.random.randint(cuts, (GROUPS - 1,), 0, M + 1, jnp.int32))
    return (
        jax.random.normal(x, (M, K), jnp.bfloat16),
        jax.random.normal(w, (GROUPS, K, N), jnp.bfloat16),
        jnp.diff(cuts, prepend=0, append=M).astype(jnp.int32),
    )


def compute_flops():
    """Useful FLOPs: each row times one matrix."""
    return 2 * M * K * N


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    return {
        "grid": [VISITS],
        "buffers": [
            {"name": "x", "size_bytes": BM * K * 2, "double_buffered": True},
            {"name": "w", "size_bytes": K * N * 2, "double_buffered": True},
            {"name": "o", "size_bytes": BM * N * 2, "double_buffered": True},
        ],
        "inputs": [
            {"name": "x", "size_bytes": M * K * 2, "re_reads": 1},
            {"name": "w", "size_bytes": GROUPS * K * N * 2, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": M * N * 2, "re_reads": 1}],
        "vreg_estimate_bytes": BM * N * 4,
    }
