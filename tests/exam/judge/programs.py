"""Programs for the judge's tests, exported here rather than in the jail: these are ours, and it is faster."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from benchmarks.lib.programs import of_function, of_source
from ratchet.exam.problem import problem as problems
from ratchet.values import Artefact


def artefact(function: Callable[..., Any], *inputs: tuple[tuple[int, ...], Any]) -> Artefact:
    """A program alone, without a problem around it. ``inputs`` are (shape, dtype)."""
    return of_function(function, [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in inputs])


@functools.cache
def examined(source: str, name: str = "kernel.py") -> tuple[Artefact, problems.Problem]:
    """What the candidate room makes of a kernel file, with the problem frozen from it."""
    made, problem = of_source(source, name)
    assert problem is not None
    return made, problem


def blocked(
    body: Callable[..., None],
    shape: tuple[int, ...] = (1024, 128),
    block: tuple[int, ...] = (256, 128),
    dtype: Any = jnp.float32,
    *,
    inputs: int = 1,
    **options: Any,
) -> Callable[..., Any]:
    """A kernel over row blocks of ``inputs`` equal arrays; ``body`` gets the refs."""
    spec = pl.BlockSpec(block, lambda i: (i, *(0 for _ in shape[1:])))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(shape, dtype),
        grid=(shape[0] // block[0],),
        in_specs=[spec] * inputs,
        out_specs=spec,
        **options,
    )


def double(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * 2


def scratch(shape: tuple[int, ...], dtype: Any = jnp.float32) -> Any:
    return pltpu.VMEM(shape, dtype)
