"""Running sums that begin anew with each segment: bound by the vector units, with spills."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from benchmarks.lib.published.build import Built, NotBuilt, aval
from benchmarks.lib.published.cases import Case

LANES = 128
LEVELS = 7
"""Doublings that cover the lanes of a row."""


def _along_rows(sums: jax.Array, ids: jax.Array, shifts: Any) -> jax.Array:
    """Doubling along the lanes. A shift of the sums is a product with a 0/1 matrix, one of the ids a rotation."""
    for level in range(LEVELS):
        moved = jnp.dot(sums, shifts[level], preferred_element_type=jnp.float32).astype(sums.dtype)
        sums += jnp.where(pltpu.roll(ids, 1 << level, axis=1) == ids, moved, 0)
    return sums


def _behind(first: jax.Array, values: jax.Array) -> jax.Array:
    """``first``, then ``values`` without as many of their last."""
    return jnp.concatenate([first, values[: -first.shape[0]]], axis=0)


def _over_rows(sums: jax.Array, ids: jax.Array) -> jax.Array:
    """Doubling over the rows' last sums, ``[rows]``."""
    step = 1
    while step < sums.shape[0]:
        moved = _behind(jnp.zeros((step,), sums.dtype), sums)
        sums += jnp.where(_behind(jnp.zeros((step,), ids.dtype), ids) == ids, moved, 0)
        step *= 2
    return sums


def _body(x_ref: Any, id_ref: Any, shift_ref: Any, o_ref: Any, sum_ref: Any, last_ref: Any) -> None:
    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        sum_ref[...] = jnp.zeros_like(sum_ref)
        last_ref[...] = jnp.full_like(last_ref, jnp.iinfo(jnp.int32).min)

    x, ids = x_ref[...], id_ref[...]
    own = _along_rows(x, ids, shift_ref)
    before = jnp.concatenate([sum_ref[...], own[:-1, -1]], axis=0)
    entering = jnp.concatenate([last_ref[...], ids[:-1, -1]], axis=0)
    carried = _over_rows(before, entering)
    entering = lax.broadcast_in_dim(entering, ids.shape, (0,))
    carried = lax.broadcast_in_dim(carried.astype(jnp.float32), ids.shape, (0,))
    result = own + jnp.where(entering == ids, carried, jnp.float32(0.0)).astype(own.dtype)
    o_ref[...] = result
    sum_ref[...] = result[-1:, -1]
    last_ref[...] = ids[-1:, -1]


def segmented_cumsum(x: jax.Array, ids: jax.Array, *, block: int) -> jax.Array:
    """Running sums of ``x`` [n] over equal neighbours of ``ids`` [n], int32; ``block`` values a grid step."""
    rows = x.shape[0] // LANES
    lane = jnp.arange(LANES, dtype=jnp.int32)
    shifts = jnp.stack([(lane[:, None] + (1 << k) == lane[None, :]).astype(x.dtype) for k in range(LEVELS)])
    spec = pl.BlockSpec((block // LANES, LANES), lambda i: (i, 0))
    return pl.pallas_call(
        _body,
        grid=(x.shape[0] // block,),
        in_specs=[spec, spec, pl.BlockSpec(shifts.shape, lambda i: (0, 0, 0))],
        out_specs=spec,
        scratch_shapes=[pltpu.VMEM((1,), x.dtype), pltpu.VMEM((1,), ids.dtype)],
        out_shape=jax.ShapeDtypeStruct((rows, LANES), x.dtype),
    )(x.reshape(rows, LANES), ids.reshape(rows, LANES), shifts).ravel()


def build(case: Case) -> Built:
    """The kernel of a row. Raises NotBuilt."""
    try:
        block = int(case.config["bm"])
    except KeyError as error:
        raise NotBuilt(f"a segmented cumsum without {error}") from None
    x = aval(case.arrays[0])
    function = functools.partial(segmented_cumsum, block=block)
    return Built(function=function, avals=(x, jax.ShapeDtypeStruct(x.shape, jnp.int32)))
