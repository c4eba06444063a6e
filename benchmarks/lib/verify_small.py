"""Small kernels to verify for what the large ones do not use: narrow types, overlapping windows, squeezed blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from benchmarks.lib.verify_cases import Case, normal


def _fp8() -> Case:
    """A product of float8 operands, widened in the kernel as a chip without fp8 units must."""

    def kernel(x: Any, y: Any, o: Any) -> None:
        o[...] = jnp.dot(x[...].astype(jnp.bfloat16), y[...].astype(jnp.bfloat16), preferred_element_type=jnp.float32)

    return Case(
        name="fp8 matmul",
        function=pl.pallas_call(
            kernel, grid=(2, 2),
            in_specs=[pl.BlockSpec((128, 256), lambda i, j: (i, 0)), pl.BlockSpec((256, 128), lambda i, j: (0, j))],
            out_specs=pl.BlockSpec((128, 128), lambda i, j: (i, j)),
            out_shape=jax.ShapeDtypeStruct((256, 256), jnp.float32),
        ),
        inputs=(normal(0, (256, 256), jnp.float8_e4m3fn), normal(1, (256, 256), jnp.float8_e5m2)),
        tolerance=1e-5,
    )  # fmt: skip


def _int4(signed: bool) -> Case:
    """bfloat16 activations, 4-bit weights and one scale for every column."""

    def kernel(x: Any, w: Any, scale: Any, o: Any) -> None:
        product = jnp.dot(x[...], w[...].astype(jnp.bfloat16), preferred_element_type=jnp.float32)
        o[...] = (product * scale[...]).astype(o.dtype)

    low, dtype = (-8, jnp.int4) if signed else (0, jnp.uint4)
    weights = np.random.default_rng(0).integers(low, low + 16, (256, 256)).astype(dtype)
    return Case(
        name=f"{np.dtype(dtype)} weights",
        function=pl.pallas_call(
            kernel, grid=(2,),
            in_specs=[
                pl.BlockSpec((128, 256), lambda j: (0, 0)),
                pl.BlockSpec((256, 128), lambda j: (0, j)),
                pl.BlockSpec((1, 128), lambda j: (0, j)),
            ],
            out_specs=pl.BlockSpec((128, 128), lambda j: (0, j)),
            out_shape=jax.ShapeDtypeStruct((128, 256), jnp.bfloat16),
        ),
        inputs=(normal(0, (128, 256)), weights, normal(1, (1, 256), jnp.float32)),
    )  # fmt: skip


def _element_windows() -> Case:
    """The sum of three neighbouring rows: windows of 24 rows, 8 apart, so that they overlap."""

    def kernel(x: Any, o: Any) -> None:
        o[...] = x[0:8] + x[8:16] + x[16:24]

    return Case(
        name="element-indexed windows",
        function=pl.pallas_call(
            kernel, grid=(14,),
            in_specs=[pl.BlockSpec((pl.Element(24), pl.Element(128)), lambda i: (i * 8, 0))],
            out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
            out_shape=jax.ShapeDtypeStruct((112, 128), jnp.float32),
        ),
        inputs=(normal(0, (128, 128), jnp.float32),),
        tolerance=1e-6,
    )  # fmt: skip


def _squeezed() -> Case:
    """Heads are squeezed out of the blocks, and the output of one step is revisited by the next."""

    def kernel(x: Any, o: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o[...] = jnp.zeros_like(o)

        o[...] += x[...].astype(jnp.float32)

    return Case(
        name="squeezed blocks, revisited output",
        function=pl.pallas_call(
            kernel, grid=(3, 4),
            in_specs=[pl.BlockSpec((None, None, 32, 128), lambda h, j: (h, j, 0, 0))],
            out_specs=pl.BlockSpec((None, 32, 128), lambda h, j: (h, 0, 0)),
            out_shape=jax.ShapeDtypeStruct((3, 32, 128), jnp.float32),
        ),
        inputs=(normal(0, (3, 4, 32, 128)),),
        tolerance=1e-6,
    )  # fmt: skip


BUILDERS: dict[str, Callable[[], Case]] = {
    "fp8": _fp8,
    "int4": functools.partial(_int4, True),
    "uint4": functools.partial(_int4, False),
    "element_windows": _element_windows,
    "squeezed": _squeezed,
}
