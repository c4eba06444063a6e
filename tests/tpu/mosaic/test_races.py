"""Copies in flight and windows read early: what a race would change is a finding, and without the race nothing is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu.mosaic import run, translation
from ratchet.tpu.mosaic.findings import Kind
from tests.exam.judge.programs import artefact
from tests.tpu.mosaic.kernels import ANY, DMA, Kernel, X, copied_in, findings, kernel_call, kinds, rows, vmem

# --- copies in flight -----------------------------------------------------------------------------


def both_into_one(*, wait_first: bool, shape: tuple[int, int] = (64, 128)) -> Kernel:
    """Two copies into the same rows; the second has to win."""

    def kernel(x: Any, y: Any, o: Any, sems: Any) -> None:
        first, second = (pltpu.make_async_copy(ref, o, sems.at[n]) for n, ref in enumerate((x, y)))
        first.start()
        if wait_first:
            first.wait()
        second.start()
        if not wait_first:
            first.wait()
        second.wait()

    out = jax.ShapeDtypeStruct(shape, jnp.float32)
    return kernel_call(kernel, out, in_specs=[ANY, ANY], out_specs=ANY, scratch_shapes=[DMA((2,))])


def stored_over(*, wait_first: bool) -> Kernel:
    """A store into rows that a copy arrives in, and nobody reads them before."""

    def kernel(x: Any, o: Any, buffer: Any, sem: Any) -> None:
        copy = pltpu.make_async_copy(x, buffer, sem)
        copy.start()
        if wait_first:
            copy.wait()
        buffer[0:8] = jnp.zeros((8, 128))
        if not wait_first:
            copy.wait()
        o[...] = buffer[...]

    return kernel_call(kernel, in_specs=[ANY], scratch_shapes=[vmem(), DMA])


def from_a_window(*, wait_first: bool, fixed: bool = False) -> Kernel:
    """Each step's block leaves by a copy from the pipeline's own window, which ends in the next step."""

    def kernel(x: Any, o: Any, sem: Any) -> None:
        i = pl.program_id(0)
        copy = pltpu.make_async_copy(x, o.at[pl.ds(i * 16, 16)], sem)

        @pl.when(jnp.logical_not(wait_first) & (i > 0))
        def _() -> None:
            copy.wait()

        copy.start()

        @pl.when(wait_first | (i == 3))
        def _() -> None:
            copy.wait()

    block = pl.BlockSpec((16, 128), lambda i: (0 if fixed else i, 0))
    return kernel_call(kernel, grid=(4,), in_specs=[block], out_specs=ANY, scratch_shapes=[DMA])


def scoped(*, wait_inside: bool) -> Kernel:
    """A copy from memory of a scope that may end before the copy does."""

    def kernel(x: Any, o: Any, sem: Any) -> None:
        def leave(buffer: Any) -> None:
            buffer[...] = x[...] * 2
            copy = pltpu.make_async_copy(buffer, o, sem)
            copy.start()
            if wait_inside:
                copy.wait()

        pl.run_scoped(leave, vmem())
        if not wait_inside:
            pltpu.make_async_copy(o, o, sem).wait()

    return kernel_call(kernel, out_specs=ANY, scratch_shapes=[DMA])


def many(*, slots: int) -> Kernel:
    """Forty copies out of as many slots, each with a semaphore of its own; then one slot is used again too early."""

    def kernel(x: Any, o: Any, buffer: Any, sems: Any) -> None:
        def copy(n: Any) -> Any:
            return pltpu.make_async_copy(buffer.at[n], o.at[n], sems.at[n])

        def start(n: Any, _: None) -> None:
            buffer[n] = x[0:8] + n.astype(jnp.float32)
            copy(n).start()

        def wait(n: Any, _: None) -> None:
            copy(n).wait()

        jax.lax.fori_loop(0, 40, start, None)
        copy(jnp.int32(0)).wait()
        buffer[31 if slots < 40 else 0] = x[8:16]
        jax.lax.fori_loop(1, 40, wait, None)

    out = jax.ShapeDtypeStruct((40, 8, 128), jnp.float32)
    return kernel_call(kernel, out, out_specs=ANY, scratch_shapes=[vmem(40, 8, 128), DMA((40,))])


def in_place(*, apart: int) -> Kernel:
    """Two copies of one array, each from rows of it to rows of it; the second begins while the first is in flight."""

    def kernel(x: Any, o: Any, sems: Any) -> None:
        first = pltpu.make_async_copy(x.at[pl.ds(0, 8)], o.at[pl.ds(8, 8)], sems.at[0])
        second = pltpu.make_async_copy(x.at[pl.ds(32, 8)], o.at[pl.ds(apart, 8)], sems.at[1])
        first.start()
        second.start()
        first.wait()
        second.wait()

    return kernel_call(kernel, in_specs=[ANY], out_specs=ANY, input_output_aliases={0: 0}, scratch_shapes=[DMA((2,))])


LARGE = (1 << 13, 1 << 10)


@pytest.mark.parametrize(
    ("broken", "sound", "kind", "inputs"),
    [
        (both_into_one(wait_first=False), both_into_one(wait_first=True), Kind.TARGET_OVERWRITTEN, (X, X + 1)),
        (
            both_into_one(wait_first=False, shape=LARGE), both_into_one(wait_first=True, shape=LARGE),
            Kind.TARGET_OVERWRITTEN, (np.zeros(LARGE, np.float32), np.ones(LARGE, np.float32)),
        ),
        (stored_over(wait_first=False), stored_over(wait_first=True), Kind.TARGET_OVERWRITTEN, (X,)),
        (from_a_window(wait_first=False), from_a_window(wait_first=True), Kind.SOURCE_OVERWRITTEN, (X,)),
        (from_a_window(wait_first=False), from_a_window(wait_first=False, fixed=True), Kind.SOURCE_OVERWRITTEN, (X,)),
        (scoped(wait_inside=False), scoped(wait_inside=True), Kind.SOURCE_OVERWRITTEN, (X,)),
        (many(slots=39), many(slots=40), Kind.SOURCE_OVERWRITTEN, (X,)),
        (in_place(apart=4), in_place(apart=16), Kind.SOURCE_OVERWRITTEN, (X,)),
        (in_place(apart=12), in_place(apart=16), Kind.TARGET_OVERWRITTEN, (X,)),
    ],
    ids=["two-targets", "large", "store", "window", "window-that-stays", "scope", "many", "source-rows", "target-rows"],
)  # fmt: skip
def test_nothing_is_written_where_a_copy_is_in_flight(
    broken: Kernel, sound: Kernel, kind: Kind, inputs: tuple[np.ndarray, ...]
) -> None:
    assert kinds(sound, *inputs) == []
    assert kind in kinds(broken, *inputs)


# --- windows that are read early -----------------------------------------------------------------


def behind(distance: int, *, buffers: int = 2) -> Kernel:
    """In place, each step adds the block that was written ``distance`` steps before."""

    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...] * 2

    def block(offset: int) -> Any:
        mode = {"pipeline_mode": pl.Buffered(buffers)} if buffers != 2 else {}
        return pl.BlockSpec((8, 128), lambda i: ((i + 8 - offset) % 8, 0), **mode)

    return kernel_call(kernel, grid=(8,), in_specs=[block(distance)], out_specs=block(0), input_output_aliases={0: 0})


@pytest.mark.parametrize(
    ("distance", "buffers", "races"),
    [(0, 2, False), (1, 2, True), (2, 2, True), (3, 2, False), (1, 1, False), (-1, 2, False)],
)
def test_a_window_is_not_written_while_the_pipeline_reads_it(distance: int, buffers: int, races: bool) -> None:
    found = findings(behind(distance, buffers=buffers), X)
    assert [finding.kind for finding in found] == [Kind.WINDOW_RACE] * races
    for finding in found:
        assert finding.operation == "vector.load"
        assert finding.grid_step == (distance,)


def written_by_hand(further: int) -> Kernel:
    """The kernel writes rows of the array that the pipeline reads, some blocks ``further``, by a copy of its own."""

    def kernel(x: Any, o: Any, buffer: Any, sem: Any) -> None:
        buffer[...] = x[...] * 2

        @pl.when(pl.program_id(0) + further < 8)
        def _() -> None:
            to = o.at[pl.ds((pl.program_id(0) + further) * 8, 8)]
            pltpu.async_copy(buffer, to, sem).wait()

    aliases, scratch = {0: 0}, [vmem(8, 128), DMA]
    return kernel_call(
        kernel, grid=(8,), in_specs=[rows(8)], out_specs=ANY, input_output_aliases=aliases, scratch_shapes=scratch
    )


@pytest.mark.parametrize(("further", "wanted"), [(0, []), (1, [Kind.WINDOW_RACE]), (2, [])])
def test_a_copy_into_the_next_window_comes_too_late(further: int, wanted: list[Kind]) -> None:
    assert kinds(written_by_hand(further), X) == wanted


# --- which translations that takes -----------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True])
def test_where_late_copies_change_nothing_a_program_is_translated_once(
    early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, lowered = [], translation.lowered
    monkeypatch.setattr(translation, "lowered", lambda *given, **by: made.append(given) or lowered(*given, **by))
    program = artefact(copied_in(waits=1, early=early), ((64, 128), jnp.float32)).program
    result = run.load(program).check([X])
    assert (len(made) > 1) is early
    plain = run.translated(export.deserialize(bytearray(program)), run.Options(fast=False)).check([X])
    assert [finding.kind for finding in result.findings] == [finding.kind for finding in plain.findings]
    if early:
        assert result.findings[0].kind is Kind.READ_BEFORE_WAIT
    else:
        assert result.outputs[0].tobytes() == plain.outputs[0].tobytes() == X.tobytes()
