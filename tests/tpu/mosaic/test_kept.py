"""Narrow floats are integers of the same bits in the executor's memory, from a program's inputs to its outputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu.mosaic.arrays import kept_as
from tests.tpu.mosaic.kernels import ANY, DMA, kernel_call, loaded

ROWS, COLUMNS, BLOCK = 256, 128, 32
NARROW = [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2]


def _copied(dtype: Any) -> Any:
    """A kernel that copies block after block of an array by DMA."""

    def kernel(x: Any, o: Any, semaphore: Any) -> None:
        copy = pltpu.make_async_copy(x.at[pl.ds(pl.program_id(0) * BLOCK, BLOCK)], o, semaphore)
        copy.start()
        copy.wait()

    return kernel_call(
        kernel,
        grid=(ROWS // BLOCK,),
        in_specs=[ANY],
        out_specs=pl.BlockSpec((BLOCK, COLUMNS), lambda i: (i, 0)),
        scratch_shapes=[DMA],
        shape=jax.ShapeDtypeStruct((ROWS, COLUMNS), dtype),
    )


@pytest.mark.parametrize("dtype", [*NARROW, jnp.float32, jnp.int8])
def test_every_bit_of_what_is_copied_arrives_nans_too(dtype: Any) -> None:
    words = np.arange(ROWS * COLUMNS * np.dtype(dtype).itemsize, dtype=np.uint32).astype(np.uint8)
    x = words.view(dtype).reshape(ROWS, COLUMNS)
    result = loaded(_copied(dtype), x).check([x])
    assert result.findings == ()
    (output,) = result.outputs
    assert output.dtype == x.dtype
    assert output.tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", NARROW)
def test_no_execution_converts_a_whole_input(dtype: Any) -> None:
    """XLA would copy all of a cache in HBM for it, each time."""
    x = np.zeros((ROWS, COLUMNS), dtype)
    program = loaded(_copied(dtype), x)
    (held,) = program.place([x])
    assert held.dtype == kept_as(x.dtype) != x.dtype
    whole = f"[{ROWS},{COLUMNS}]"
    made = [
        line
        for line in program.with_options(**program.first).compiled.as_text().splitlines()
        if "bitcast-convert(" in line
    ]
    assert not [line for line in made if whole in line.split("=")[1]]
