"""A kernel twice: its exported TPU program under the judge's execution, and Pallas's own interpret mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from ratchet.tpu.mosaic.run import Loaded, load


def loaded(function: Callable[..., Any], *arrays: Any, f32_matmul_passes: str = "exact") -> Loaded:
    """The TPU program of ``function``, loaded for execution on the CPU."""
    avals = [jax.ShapeDtypeStruct(np.shape(a), a.dtype) for a in arrays]
    program = export.export(jax.jit(function), platforms=("tpu",))(*avals).serialize()
    return load(bytes(program), f32_matmul_passes=f32_matmul_passes)


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
