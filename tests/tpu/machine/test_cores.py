"""The two cores of a v5p: alone where neither waits for the other, together where they do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu import library
from ratchet.values.status import Status
from tests.refusals import refused

ROWS, WIDTH = 64, 256


def halves(*, turns: int, signals: int = 1, waits: int = 1) -> Any:
    """A kernel whose second core does its half so many times, and whose first then waits for it."""

    def body(x: Any, o: Any) -> None:
        me = jax.lax.axis_index("core")

        def scoped(held: Any, arrived: Any, done: Any) -> None:
            rows = pl.ds(me * (ROWS // 2), ROWS // 2)

            @pl.loop(0, jnp.where(me == 1, turns, 1))
            def _(_: Any) -> None:
                pltpu.async_copy(x.at[rows], held, arrived).wait()
                pltpu.async_copy(held, o.at[rows], arrived).wait()

            if signals:
                pl.semaphore_signal(done, signals, core_index=1 - me)
            if waits:
                pl.semaphore_wait(done, waits)

        half = pltpu.VMEM((ROWS // 2, WIDTH), jnp.float32)
        pl.run_scoped(scoped, half, pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR)

    mesh = pltpu.create_tensorcore_mesh("core", num_cores=2)

    def copied(x: jax.Array) -> jax.Array:
        made: jax.Array = pl.kernel(body, jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32), mesh=mesh)(x)
        return made

    return copied


def cycles(**how: int) -> int:
    kernel = halves(**how)
    program = library.compile(kernel, jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32), chip="v5p")
    return library.model(program).cycles


def test_a_core_waits_for_what_the_other_one_signals() -> None:
    alone, together, longer = cycles(turns=20, signals=0, waits=0), cycles(turns=20), cycles(turns=40)
    assert alone <= together < 1.05 * alone, "the second core's turns decide, and a signal"
    assert longer - together == pytest.approx(together - cycles(turns=0), rel=0.1)


def test_cores_that_wait_for_a_signal_too_many_are_a_deadlock() -> None:
    with refused(Status.DEADLOCK, "the cores wait .*: core 0 for more than core 1 sent; core 1 for more than core 0 "):
        cycles(turns=1, waits=2)
