"""Tiled matmuls with published wall-clock sweeps, written from what their sources say of them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from benchmarks.lib.published.build import Built, NotBuilt, aval
from benchmarks.lib.published.cases import Case


def _blocks(case: Case) -> tuple[int, int, int]:
    try:
        return int(case.config["bm"]), int(case.config["bk"]), int(case.config["bn"])
    except KeyError as error:
        raise NotBuilt(f"a matmul without {error}; has {dict(case.config)}") from None


def _specs(bm: int, bk: int, bn: int) -> dict[str, Any]:
    return {
        "in_specs": [
            pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)),
            pl.BlockSpec((bk, bn), lambda i, j, k: (k, j)),
        ],
        "out_specs": pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)),
    }


def scratch_matmul(x: jax.Array, y: jax.Array, *, blocks: tuple[int, int, int], parallel: bool) -> jax.Array:
    """Grid (i, j, k), accumulation in an f32 scratch, result in the operands' dtype."""
    (m, k), (_, n), (bm, bk, bn) = x.shape, y.shape, blocks

    def body(x_ref: Any, y_ref: Any, o_ref: Any, acc_ref: Any) -> None:
        step = pl.program_id(2)

        @pl.when(step == 0)
        def _() -> None:
            acc_ref[...] = jnp.zeros_like(acc_ref)

        acc_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

        @pl.when(step == pl.num_programs(2) - 1)
        def _() -> None:
            o_ref[...] = acc_ref[...].astype(o_ref.dtype)

    semantics: Any = ("parallel", "parallel", "arbitrary") if parallel else None
    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, bm), pl.cdiv(n, bn), pl.cdiv(k, bk)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=semantics) if semantics else None,
        **_specs(*blocks),
    )(x, y)


def output_matmul(x: jax.Array, y: jax.Array, *, blocks: tuple[int, int, int]) -> jax.Array:
    """Grid (i, j, k), accumulation in the f32 output block; the cast is outside of the kernel."""
    (m, k), (_, n), (bm, bk, bn) = x.shape, y.shape, blocks

    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    out = pl.pallas_call(
        body,
        grid=(pl.cdiv(m, bm), pl.cdiv(n, bn), pl.cdiv(k, bk)),
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32),
        **_specs(*blocks),
    )(x, y)
    return out.astype(x.dtype)


def build(case: Case) -> Built:
    """The matmul that a row names. Raises NotBuilt."""
    blocks = _blocks(case)
    if len(case.arrays) != 2:
        raise NotBuilt("a matmul of other than two operands")
    if "pallas_forge" in case.kernel:
        function = functools.partial(output_matmul, blocks=blocks)
    else:
        function = functools.partial(scratch_matmul, blocks=blocks, parallel="dimension_semantics" in case.kernel)
    return Built(function=function, avals=tuple(aval(array) for array in case.arrays), scalars={})
