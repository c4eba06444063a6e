"""What tests of kernels share: a TPU program loaded for the CPU, what is found in it, and how near values are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu.exporting import for_tpu
from ratchet.tpu.mosaic.findings import Finding, Kind
from ratchet.tpu.mosaic.run import Loaded, load

X = np.arange(64 * 128, dtype=np.float32).reshape(64, 128)
OUT = jax.ShapeDtypeStruct((64, 128), jnp.float32)
ANY = pl.BlockSpec(memory_space=pl.ANY)
DMA = pltpu.SemaphoreType.DMA
VMEM = pl.BlockSpec(memory_space=pltpu.VMEM)
Kernel = Callable[..., Any]


def rows(count: int) -> pl.BlockSpec:
    """Blocks of so many rows, one for each step."""
    return pl.BlockSpec((count, 128), lambda i: (i, 0))


def vmem(*shape: int, dtype: Any = jnp.float32) -> Any:
    return pltpu.VMEM(shape or (64, 128), dtype)


def kernel_call(body: Kernel, shape: Any = OUT, **options: Any) -> Kernel:
    """A kernel that gives an array of this shape."""
    return pl.pallas_call(body, out_shape=shape, **options)


def with_scalars(
    body: Kernel, *, ins: Sequence[Any], out: Any, grid: tuple[int, ...] = (), scratch: Any = (), shape: Any = OUT
) -> Kernel:
    """A kernel whose first operand is prefetched scalars."""
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=grid, in_specs=ins, out_specs=out, scratch_shapes=scratch
    )
    return pl.pallas_call(body, grid_spec=spec, out_shape=shape)


def copied_in(*, waits: int, early: bool = False, rows: int = 64) -> Kernel:
    """An array that a copy brings into the first 64 ``rows`` of a buffer; it is waited for so often."""

    def kernel(x: Any, o: Any, whole: Any, sem: Any) -> None:
        buffer = whole.at[pl.ds(0, 64)]
        copy = pltpu.make_async_copy(x, buffer, sem)
        copy.start()
        if early:
            o[...] = buffer[...]
        for _ in range(waits):
            copy.wait()
        if not early:
            o[...] = buffer[...]

    return kernel_call(kernel, in_specs=[ANY], scratch_shapes=[vmem(rows, 128), DMA])


def loaded(function: Kernel, *arrays: Any, f32_matmul_passes: str = "exact") -> Loaded:
    """The TPU program of ``function``, loaded for execution on the CPU."""
    avals = [jax.ShapeDtypeStruct(np.shape(a), a.dtype) for a in arrays]
    with for_tpu():
        program = export.export(jax.jit(function), platforms=("tpu",))(*avals).serialize()
    return load(bytes(program), f32_matmul_passes=f32_matmul_passes)


def findings(function: Kernel, *inputs: np.ndarray) -> list[Finding]:
    return list(loaded(function, *inputs).check(inputs).findings)


def kinds(function: Kernel, *inputs: np.ndarray) -> list[Kind]:
    return [finding.kind for finding in findings(function, *inputs)]


def close(got: Sequence[np.ndarray], want: Any, tolerance: float = 1e-5) -> None:
    """Equal within ``tolerance`` of the largest magnitude, NaN where NaN."""
    leaves = jax.tree.leaves(want)
    assert len(got) == len(leaves)
    for a, leaf in zip(got, leaves, strict=True):
        b = np.asarray(leaf)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        a64, b64 = a.astype(np.float64), b.astype(np.float64)
        scale = np.nanmax(np.abs(b64), initial=1e-30, where=np.isfinite(b64))
        np.testing.assert_allclose(a64, b64, rtol=0, atol=tolerance * scale)


def numbers(array: Any) -> Any:
    """Elements as Python's numbers, in lists."""
    return np.asarray(array, np.float32).tolist()
