"""A program whose result XLA leaves to the SparseCores, kept as golden dumps of tpu7x."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

ROWS, BLOCK = 16384, 4096


def _swapped(x: jax.Array) -> jax.Array:
    """A kernel's result, transposed: XLA has the SparseCores do that."""

    def body(x, o):  # type: ignore[no-untyped-def]
        o[...] = x[...] * 2

    block = pl.BlockSpec((None, BLOCK, 128), lambda i, j: (i, j, 0))
    grid = (x.shape[0], ROWS // BLOCK)
    return jnp.swapaxes(pl.pallas_call(body, grid=grid, in_specs=[block], out_specs=block, out_shape=x)(x), 0, 1)


PROGRAMS: dict[str, tuple[Any, Any]] = {"swap": (_swapped, [((8, ROWS, 128), jnp.bfloat16)])}
