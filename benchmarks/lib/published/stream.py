"""A kernel that doubles an array block by block: nothing but streaming through VMEM."""

from __future__ import annotations

import functools
from typing import Any

import jax
from jax.experimental import pallas as pl

from benchmarks.lib.published.build import Built, NotBuilt, aval
from benchmarks.lib.published.cases import Case


def doubled(x: jax.Array, *, block: tuple[int, int]) -> jax.Array:
    """``2 * x`` over a grid of blocks of ``block``."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    spec = pl.BlockSpec(block, lambda i, j: (i, j))
    return pl.pallas_call(
        body,
        grid=tuple(pl.cdiv(size, part) for size, part in zip(x.shape, block, strict=True)),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x)


def build(case: Case) -> Built:
    """The kernel of a row. Raises NotBuilt."""
    try:
        block = (int(case.config["bm"]), int(case.config["bn"]))
    except KeyError as error:
        raise NotBuilt(f"streaming without {error}") from None
    return Built(function=functools.partial(doubled, block=block), avals=tuple(aval(array) for array in case.arrays))
