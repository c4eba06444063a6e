"""Product of a mixture of experts: each row of x bfloat16[8192, 2048] times its expert's of w bfloat16[8, 2048, 2048].

The rows are sorted by expert, sizes int32[8] says how many rows each has. Matrices come to VMEM by the kernel's own
copies, those of the next two experts while this one's is used; x arrives and the result leaves in pieces. A chunk of
rows begins where its expert begins, so that few rows are multiplied by a matrix that is not theirs: those that fill up
the last chunk, which the next expert writes again, and those in the same tile of 16 rows as its first one, which are
kept. Mutation to try next: the first expert's columns one after the other, as they arrive.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "moe_matmul"
PROBLEM_DESCRIPTION = "bfloat16[8192, 2048] times one of eight bfloat16[2048, 2048] by row, rows sorted by expert"

M, K, N, GROUPS = 8192, 2048, 2048, 8

ROWS = 256  # of a chunk, and of x and the result in a piece
COLUMNS = 1024  # of a matrix that arrive together
UNIT = 32  # rows to which the last chunk of an expert is filled up
TILE = 16  # rows of bfloat16 that a vector register holds
AHEAD = 3  # matrices in VMEM, and pieces of x under way: what is needed last is asked for last
PIECES = M // ROWS


def _multiply(edges, x_hbm, w_hbm, o_hbm, x_ref, w_ref, o_ref, arrived, fetched, left, at):
    """at: int32[2], how many pieces of x have arrived, and how many of the result have left."""

    def fetch_x(piece):
        part = pl.ds(pl.multiple_of(piece * ROWS, ROWS), ROWS)
        return pltpu.make_async_copy(x_hbm.at[part], x_ref.at[part], arrived.at[piece])

    def leave(piece):
        part = pl.ds(pl.multiple_of(piece * ROWS, ROWS), ROWS)
        return pltpu.make_async_copy(o_ref.at[part], o_hbm.at[part], left.at[piece])

    def fetch_w(group, slot, columns):
        part = pl.ds(columns * COLUMNS, COLUMNS)
        return pltpu.make_async_copy(w_hbm.at[group, :, part], w_ref.at[slot, :, part], fetched.at[slot, columns])

    def await_x(end):
        """Until rows before `end` are there, as far as there are any."""
        wanted = jnp.minimum((end + ROWS - 1) // ROWS, PIECES)

        @pl.loop(at[0], wanted)
        def _piece(piece):
            fetch_x(piece).wait()
            pl.when(piece + AHEAD < PIECES)(lambda: fetch_x(piece + AHEAD).start())

        at[0] = jnp.maximum(at[0], wanted)

    def send(end):
        """Those pieces of the result whose rows are all before `end`."""
        ready = end // ROWS

        @pl.loop(at[1], ready)
        def _piece(piece):
            leave(piece).start()

        at[1] = jnp.maximum(at[1], ready)

    def chunk(row, rows, first, slot, ready=None):
        """Products of `rows` rows from `row` on; those before `first` are another expert's."""
        x = x_ref[pl.ds(row, rows), :]
        top = pl.ds(row, TILE)
        own = row + jax.lax.broadcasted_iota(jnp.int32, (TILE, COLUMNS), 0) >= first
        for columns in range(N // COLUMNS):
            part = slice(columns * COLUMNS, (columns + 1) * COLUMNS)
            if ready is not None:
                ready(columns)
            product = jnp.dot(x, w_ref[slot, :, part], preferred_element_type=jnp.float32).astype(o_ref.dtype)
            o_ref[top, part] = jnp.where(own, product[:TILE], o_ref[top, part])
            o_ref[pl.ds(row + TILE, rows - TILE), part] = product[TILE:]

    def fetch_matrix(group):
        for columns in range(N // COLUMNS):
            fetch_w(group, group % AHEAD, columns).start()

    fetch_x(0).start()
    fetch_matrix(0)
    for number in range(1, AHEAD):
        fetch_x(number).start()
        if number < AHEAD - 1:
            fetch_matrix(number)
    at[0], at[1] = 0, 0

    @pl.loop(0, GROUPS)
    def _expert(group):
        slot = group % AHEAD
        pl.when(group + AHEAD - 1 < GROUPS)(lambda: fetch_matrix(group + AHEAD - 1))
        for columns in range(N // COLUMNS):
            fetch_w(group, slot, columns).wait()
        first, end = edges[group], edges[group + 1]
        start = first // TILE * TILE
        whole = (end - start) // ROWS

        @pl.loop(0, whole)
        def _chunk(number):
            row = pl.multiple_of(start + number * ROWS, TILE)
            await_x(row + ROWS)
            chunk(row, ROWS, first, slot)
            send(row + ROWS)

        row = pl.multiple_of(start + whole * ROWS, TILE)
        units = jnp.where(end > first, (end - row + UNIT - 1) // UNIT, 0)
        await_x(row + units * UNIT)
        for number in range(1, ROWS // UNIT + 1):
            pl.when(units == number)(functools.partial(chunk, row, number * UNIT, first, slot))
        send(end)

    @pl.loop(0, PIECES)
    def _left(piece):
        leave(piece).wait()


def kernel_fn(x, w, sizes):
    """x bfloat16[M, K], w bfloat16[GROUPS, K, N], sizes int32[GROUPS] that add up to M -> bfloat16[M, N]."""
    edges = jnp.pad(jnp.cumsum(sizes), (1, 0))
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((M, N), x.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * 2,
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            scratch_shapes=[
                pltpu.VMEM((M + UNIT, K), x.dtype),
                pltpu.VMEM((AHEAD, K, N), w.dtype),
                pltpu.VMEM((M + UNIT, N), x.dtype),
                pltpu.SemaphoreType.DMA((PIECES,)),
                pltpu.SemaphoreType.DMA((AHEAD, N // COLUMNS)),
                pltpu.SemaphoreType.DMA((PIECES,)),
                pltpu.SMEM((2,), jnp.int32),
            ],
        ),
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=110 << 20),
    )(edges, x, w)


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
        "grid": [],
        "buffers": [
            {"name": "x", "size_bytes": (M + UNIT) * K * 2, "double_buffered": False},
            {"name": "w", "size_bytes": AHEAD * K * N * 2, "double_buffered": False},
            {"name": "o", "size_bytes": (M + UNIT) * N * 2, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": M * K * 2, "re_reads": 1},
            {"name": "w", "size_bytes": GROUPS * K * N * 2, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": M * N * 2, "re_reads": 1}],
        "vreg_estimate_bytes": ROWS * COLUMNS * 4,
    }
