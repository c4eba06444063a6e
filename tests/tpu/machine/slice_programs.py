"""Small programs for the four chips of a slice, kept as golden dumps. Importing this needs jax but no TPU compiler.

The mesh follows the ring of neighbours, so that the chip ids are not in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

CHIPS = 4
CHIP_IDS = (0, 1, 3, 2)
SHARD = (64, 128)
_HERE = pl.BlockSpec(memory_space=pl.ANY)
_MESH = pl.DeviceIdType.MESH


def _neighbours() -> tuple[jax.Array, jax.Array, jax.Array]:
    me = lax.axis_index("x")
    return me, lax.rem(me + CHIPS - 1, CHIPS), lax.rem(me + 1, CHIPS)


def _ring(x: jax.Array, silent: int = -1) -> jax.Array:
    """All-gather: every chip passes on what it got; ``silent`` keeps its second shard to itself."""

    def body(x, o, local, sent, arrived):  # type: ignore[no-untyped-def]
        me, left, right = _neighbours()
        barrier = pltpu.get_barrier_semaphore()
        for neighbour in (left, right):
            pl.semaphore_signal(barrier, 1, device_id=(neighbour,), device_id_type=_MESH)
        pl.semaphore_wait(barrier, 2)
        own = pltpu.make_async_copy(x, o.at[me], local)
        own.start()
        own.wait()
        for step in range(CHIPS - 1):
            shard = lax.rem(me + CHIPS - step, CHIPS)
            copy = pltpu.make_async_remote_copy(
                o.at[shard], o.at[shard], sent.at[step], arrived.at[step], device_id=(right,), device_id_type=_MESH
            )
            pl.when((me != silent) | (step != 1))(copy.start)
            copy.wait()

    return pl.pallas_call(
        body, in_specs=[_HERE], out_specs=_HERE, out_shape=jax.ShapeDtypeStruct((CHIPS, *x.shape), x.dtype),
        scratch_shapes=[
            pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA((CHIPS - 1,)), pltpu.SemaphoreType.DMA((CHIPS - 1,)),
        ],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
    )(x)  # fmt: skip


def _barrier(x: jax.Array) -> jax.Array:
    """Every chip signals every chip, itself too, and waits for all."""

    def body(x, o):  # type: ignore[no-untyped-def]
        barrier = pltpu.get_barrier_semaphore()
        for chip in range(CHIPS):
            pl.semaphore_signal(barrier, 1, device_id=(chip,), device_id_type=_MESH)
        pl.semaphore_wait(barrier, CHIPS)
        o[...] = x[...] + 1

    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
    )(x)  # fmt: skip


def _stuck(x: jax.Array) -> jax.Array:
    """One chip waits for a semaphore that nobody signals."""

    def body(x, o, flag):  # type: ignore[no-untyped-def]
        @pl.when(lax.axis_index("x") == 2)
        def _() -> None:
            pl.semaphore_wait(flag, 1)

        o[...] = x[...] + 1

    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), scratch_shapes=[pltpu.SemaphoreType.REGULAR]
    )(x)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "psum": lambda x: lax.psum(x, "x"),
    "all_gather": lambda x: lax.all_gather(x, "x"),
    "all_to_all": lambda x: lax.all_to_all(x, "x", 0, 0, tiled=True),
    "permute": lambda x: lax.ppermute(x, "x", [(i, (i + 1) % CHIPS) for i in range(CHIPS)]),
    "scatter": lambda x: lax.psum_scatter(x, "x", tiled=True),
    "ring": _ring,
    "barrier": _barrier,
    "stuck": _stuck,
    "broken_ring": lambda x: _ring(x, silent=2),
}
"""Each maps a shard of f32 over the axis ``x``."""
