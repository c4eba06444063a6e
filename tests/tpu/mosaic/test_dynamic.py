"""DMAs whose size is known only when the kernel runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.memory import Buffer, DynamicSlice, Whole
from ratchet.values.status import Status
from tests.refusals import refused
from tests.tpu.mosaic.kernels import ANY, DMA, VMEM, Kernel, X, kinds, loaded, vmem, with_scalars


def _rows(*, waited: int = 1, early: bool = False) -> Kernel:
    """Copies ``rows`` rows, given at run time, from row ``start`` of x to row 8 of zeros."""

    def kernel(rows: Any, x: Any, o: Any, buffer: Any, semaphore: Any) -> None:
        start = pl.multiple_of(rows[0], 8)
        count = pl.multiple_of(rows[1], 8)
        buffer[...] = jnp.zeros_like(buffer)
        copy = pltpu.make_async_copy(x.at[pl.ds(start, count), :], buffer.at[pl.ds(8, count), :], semaphore)
        copy.start()
        if early:
            o[...] = buffer[...]
        for _ in range(waited):
            copy.wait()
        if not early:
            o[...] = buffer[...]

    scratch = [vmem(), DMA]
    return with_scalars(kernel, ins=[ANY], out=VMEM, scratch=scratch)


@pytest.mark.parametrize(("start", "count"), [(0, 8), (16, 24), (40, 24), (64, 0), (1 << 20, 0), (8, 56)])
def test_as_many_rows_are_copied_as_asked_for(start: int, count: int) -> None:
    where = np.array([start, count], np.int32)
    result = loaded(_rows(), where, X).check([where, X])
    want = np.zeros_like(X)
    want[8 : 8 + count] = X[start : start + count]
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs[0], want)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_part_of_one_of_several_arrays_is_copied(which: int) -> None:
    """An index beside the slice of dynamic size: the dimension is squeezed out of it, at both ends."""

    def kernel(where: Any, x: Any, o: Any, semaphore: Any) -> None:
        count = pl.multiple_of(where[2], 8)
        o[...] = jnp.zeros_like(o)
        start = pl.multiple_of(where[1], 8)
        copy = pltpu.make_async_copy(x.at[where[0], pl.ds(start, count)], o.at[1, pl.ds(8, count)], semaphore)
        copy.start()
        copy.wait()

    shape = jax.ShapeDtypeStruct((2, 64, 128), jnp.float32)
    call = with_scalars(kernel, ins=[ANY], out=VMEM, scratch=[DMA], shape=shape)
    where, x = np.array([which, 16, 24], np.int32), np.stack([X, X + 1e4, X + 2e4])
    result = loaded(call, where, x).check([where, x])
    want = np.zeros((2, 64, 128), np.float32)
    want[1, 8:32] = x[which, 16:40]
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs[0], want)


@pytest.mark.parametrize(
    ("kernel", "start", "count", "kind"),
    [
        (_rows(), 48, 24, Kind.SLICE_OUT_OF_BOUNDS),
        (_rows(), 0, 64, Kind.SLICE_OUT_OF_BOUNDS),
        (_rows(), 8, -8, Kind.SLICE_OUT_OF_BOUNDS),
        (_rows(waited=0), 0, 8, Kind.DMA_NEVER_WAITED),
        (_rows(waited=2), 0, 8, Kind.WAIT_WITHOUT_START),
        (_rows(early=True), 16, 24, Kind.READ_BEFORE_WAIT),
    ],
    ids=["read-outside", "write-outside", "negative", "no-wait", "double-wait", "early"],
)
def test_what_is_wrong_with_one_is_found(kernel: Kernel, start: int, count: int, kind: Kind) -> None:
    where = np.array([start, count], np.int32)
    assert kind in kinds(kernel, where, X)


def test_anything_but_a_dma_of_such_a_slice_is_refused() -> None:
    """Pallas cannot write such a kernel, so the slice is asked itself."""
    buffer = Buffer(name="x", shape=(64, 128), dtype=np.dtype(np.float32), space="vmem")
    part = DynamicSlice(Whole(buffer), (0, 0), (jnp.int32(8), 128))
    for ask in (lambda: part.shape, lambda: part.load_all({}), lambda: part.map_indices(lambda i: i)):
        with refused(Status.CANNOT_VERIFY, "dynamic size"):
            ask()
