"""Planted bugs are found and named; the same kernels without the bug are clean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu.mosaic.findings import Kind
from ratchet.values.status import Status
from tests.imports import OLDER_JAX
from tests.tpu.mosaic.kernels import ANY, DMA, Kernel, X, copied_in, findings, kernel_call, kinds, rows, vmem


def _rows(offset: int, *, write: bool) -> Kernel:
    """Eight rows at ``8 * i`` for ``i`` up to 7, or one block further."""

    def kernel(x, o):
        i = pl.program_id(0)

        @pl.when(i == 0)
        def _():
            o[...] = jnp.zeros_like(o)

        at = pl.ds(i * 8 + offset, 8)
        if write:
            o[at, :] = x[pl.ds(i * 8, 8), :]
        else:
            o[pl.ds(i * 8, 8), :] = x[at, :]

    whole = pl.BlockSpec((64, 128), lambda i: (0, 0))
    return kernel_call(kernel, grid=(8,), in_specs=[whole], out_specs=whole)


def _index_map(offset: int) -> Kernel:
    def kernel(x, o):
        o[...] = x[...] * 2

    return kernel_call(
        kernel, grid=(4,), in_specs=[pl.BlockSpec((16, 128), lambda i: (i + offset, 0))], out_specs=rows(16)
    )


def _running_sum(*, initialise: bool = True, dtype: Any = jnp.float32, semantics: str = "arbitrary") -> Kernel:
    def kernel(x, o, acc):
        @pl.when((pl.program_id(0) == 0) & initialise)
        def _():
            acc[...] = jnp.zeros_like(acc)

        acc[...] += x[...].astype(dtype)
        o[...] = acc[...].astype(jnp.float32)

    order = pltpu.CompilerParams(dimension_semantics=(semantics,))
    scratch = [vmem(8, 128, dtype=dtype)]
    return kernel_call(
        kernel, grid=(8,), in_specs=[rows(8)], out_specs=rows(8), scratch_shapes=scratch, compiler_params=order
    )


def _copies_out(*, slots: int) -> Kernel:
    """Each block leaves by a copy that is waited for two blocks later, which two slots allow."""

    def kernel(x, o, buffer, sems):
        def copy(i):
            slot = i % 2
            return pltpu.make_async_copy(buffer.at[slot % slots], o.at[pl.ds(i * 8, 8)], sems.at[slot])

        for i in range(8):
            if i >= 2:
                copy(i - 2).wait()
            buffer[i % 2 % slots] = x[i * 8 : i * 8 + 8] * 2
            copy(i).start()
        for i in (6, 7):
            copy(i).wait()

    return kernel_call(kernel, out_specs=ANY, scratch_shapes=[vmem(slots, 8, 128), DMA((2,))])


def _reshaped(*, blocks: int) -> Kernel:
    """Copies into a reshaped output, two at a time, from one block to the next; or of two blocks each."""

    def kernel(x, o, sems):
        source, target = (ref.reshape(8, 8, 128) for ref in (x, o))

        def copy(i):
            at = pl.ds(min(i, 8 - blocks), blocks)
            return pltpu.make_async_copy(source.at[at], target.at[at], sems.at[i % 2])

        for i in range(8):
            if i >= 2:
                copy(i - 2).wait()
            copy(i).start()
        for i in (6, 7):
            copy(i).wait()

    scratch = [DMA((2,))]
    return kernel_call(kernel, in_specs=[ANY], out_specs=ANY, scratch_shapes=scratch)


def _overwrite(how: str, *, alias: bool) -> Kernel:
    """Doubles its input in place; fine only if the output is aliased to it."""

    def in_vmem(x, o):
        x[...] = x[...] * 2
        o[...] = x[...]

    def in_hbm(x, o, buffer, sem):
        pltpu.sync_copy(x, buffer)
        buffer[...] = buffer[...] * 2
        pltpu.sync_copy(buffer, x)
        if not alias:
            pltpu.sync_copy(buffer, o)

    aliases = {0: 0} if alias else {}
    if how == "store":
        return kernel_call(in_vmem, input_output_aliases=aliases)
    scratch = [vmem(), DMA]
    return kernel_call(in_hbm, in_specs=[ANY], out_specs=ANY, scratch_shapes=scratch, input_output_aliases=aliases)


def _steps(*, written: bool) -> Kernel:
    """The block of step 2 is never written, or is."""

    def kernel(x, o):
        @pl.when((pl.program_id(0) != 2) | written)
        def _():
            o[...] = x[...]

    block = rows(16)
    return kernel_call(kernel, grid=(4,), in_specs=[block], out_specs=block)


OUTSIDE, HAZARD, CHANGED = Status.OUT_OF_BOUNDS, Status.MEMORY_HAZARD, Status.INPUTS_CHANGED
WAIT = "tpu.wait_dma2" if OLDER_JAX else "tpu.wait_dma"
ADDED = "acc[...] += x[...]"
Place = tuple[str, tuple[int, ...], str]
"""Operation, grid step, and what the line says."""


@pytest.mark.parametrize(
    ("broken", "sound", "kind", "status", "place"),
    [
        (
            _rows(8, write=False), _rows(0, write=False), Kind.SLICE_OUT_OF_BOUNDS, OUTSIDE,
            ("vector.load", (7,), "= x[at, :]"),
        ),
        (_rows(8, write=True), _rows(0, write=True), Kind.SLICE_OUT_OF_BOUNDS, OUTSIDE, None),
        (
            _index_map(1), _index_map(0), Kind.WINDOW_OUT_OF_BOUNDS, OUTSIDE,
            ("arith.addi", (3,), "lambda i: (i + offset, 0)"),
        ),
        (_index_map(-1), _index_map(0), Kind.WINDOW_OUT_OF_BOUNDS, OUTSIDE, None),
        (
            _running_sum(initialise=False), _running_sum(), Kind.UNINITIALISED_MEMORY, HAZARD,
            ("vector.load", (0,), ADDED),
        ),
        (
            _running_sum(initialise=False, dtype=jnp.int32), _running_sum(dtype=jnp.int32), Kind.UNINITIALISED_MEMORY,
            HAZARD, None,
        ),
        (
            _running_sum(semantics="parallel"), _running_sum(), Kind.ORDER_OF_PARALLEL_STEPS, HAZARD,
            ("vector.load", (1,), ADDED),
        ),
        (
            copied_in(waits=0), copied_in(waits=1), Kind.DMA_NEVER_WAITED, HAZARD,
            ("tpu.enqueue_dma", (), "copy.start()"),
        ),
        (
            copied_in(waits=2), copied_in(waits=1), Kind.WAIT_WITHOUT_START, Status.DEADLOCK,
            (WAIT, (), "copy.wait()"),
        ),
        (
            copied_in(waits=1, early=True), copied_in(waits=1), Kind.READ_BEFORE_WAIT, HAZARD,
            ("vector.load", (), "o[...] = buffer[...]"),
        ),
        (copied_in(waits=1, early=True, rows=1 << 16), copied_in(waits=1), Kind.READ_BEFORE_WAIT, HAZARD, None),
        (_copies_out(slots=1), _copies_out(slots=2), Kind.SOURCE_OVERWRITTEN, HAZARD, None),
        (_reshaped(blocks=2), _reshaped(blocks=1), Kind.TARGET_OVERWRITTEN, HAZARD, None),
        (_overwrite("store", alias=False), _overwrite("store", alias=True), Kind.INPUT_WRITTEN, CHANGED, None),
        (
            _overwrite("dma", alias=False), _overwrite("dma", alias=True), Kind.INPUT_WRITTEN, CHANGED,
            ("tpu.enqueue_dma", (), "pltpu.sync_copy(buffer, x)"),
        ),
        (
            _steps(written=False), _steps(written=True), Kind.UNINITIALISED_MEMORY, HAZARD,
            ("write-back of output 0", (2,), ""),
        ),
    ],
    ids=[
        "read-outside", "write-outside", "index-map-high", "index-map-low", "scratch", "int-scratch", "parallel-carry",
        "no-wait", "double-wait", "read-before-wait", "large-buffer", "source-overwritten", "target-overwritten",
        "input-overwritten", "input-overwritten-by-dma", "unwritten-output",
    ],
)  # fmt: skip
def test_a_planted_bug_is_named_with_its_place_and_without_it_nothing_is(
    broken: Kernel, sound: Kernel, kind: Kind, status: Status, place: Place | None
) -> None:
    assert kinds(sound, X) == []
    finding = next(finding for finding in findings(broken, X) if finding.kind is kind)
    assert kind.status is status
    if place is None:
        return
    operation, step, line = place
    assert (finding.operation, finding.grid_step) == (operation, step)
    name, _, number = finding.location.rpartition(":")
    assert line in Path(name).read_text().splitlines()[int(number) - 1] if line else not name


def test_what_lies_past_a_ragged_edge_is_named_only_where_it_reaches_the_output() -> None:
    def doubled(x, o):
        o[...] = x[...] * 2

    def column_sums(x, o):
        o[...] = x[...] + x[...].sum(0, keepdims=True)

    block, out = rows(16), jax.ShapeDtypeStruct((60, 128), jnp.float32)
    calls = [
        kernel_call(body, grid=(4,), in_specs=[block], out_specs=block, shape=out) for body in (doubled, column_sums)
    ]
    assert findings(calls[0], X[:60]) == []
    (finding,) = findings(calls[1], X[:60])
    assert finding.kind is Kind.UNINITIALISED_MEMORY
    assert finding.grid_step == (3,)
    assert "ragged edge" in finding.message
