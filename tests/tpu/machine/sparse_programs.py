"""Programs with work of the SparseCores, kept as golden dumps of tpu7x."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

ROWS, BLOCK = 16384, 4096


def _swapped(x: jax.Array) -> jax.Array:
    """A kernel's result, transposed: XLA has the SparseCores do that."""

    def body(x, o):  # type: ignore[no-untyped-def]
        o[...] = x[...] * 2

    block = pl.BlockSpec((None, BLOCK, 128), lambda i, j: (i, j, 0))
    grid = (x.shape[0], ROWS // BLOCK)
    return jnp.swapaxes(pl.pallas_call(body, grid=grid, in_specs=[block], out_specs=block, out_shape=x)(x), 0, 1)


def _gathered(table: jax.Array, indices: jax.Array) -> jax.Array:
    """Rows of a table, 128 in each step of a tile."""
    many, window = indices.shape[1], 128

    def kernel(table, indices, result):  # type: ignore[no-untyped-def]
        pltpu.emit_pipeline(
            lambda here, block: pltpu.sync_copy(table.at[here.at[0]], block),
            grid=(many // window,),
            in_specs=[pl.BlockSpec((1, window), lambda i: (0, i))],
            out_specs=[pl.BlockSpec((window, 128), lambda i: (i, 0))],
            core_axis_name=("core", "subcore"),
            dimension_semantics=(pltpu.PARALLEL,),
        )(indices, result)

    mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore", num_cores=2, num_subcores=16)
    return pl.kernel(kernel, out_type=jax.ShapeDtypeStruct((many, 128), table.dtype), mesh=mesh)(table, indices)


PROGRAMS: dict[str, tuple[Any, Any]] = {
    "swap": (_swapped, [((8, ROWS, 128), jnp.bfloat16)]),
    "rows": (_gathered, [((65536, 128), jnp.float32), ((1, 32768), jnp.int32)]),
}
