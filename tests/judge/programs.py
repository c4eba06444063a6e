"""Programs for the judge's tests, exported here rather than in the jail: these are ours, and it is faster."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.candidate import problem as problems
from ratchet.candidate import room, worker
from ratchet.values import ArraySpec, Artefact


def artefact(function: Callable[..., Any], *inputs: tuple[tuple[int, ...], Any]) -> Artefact:
    """A program alone, without a problem around it. ``inputs`` are (shape, dtype)."""
    avals = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in inputs]
    exported = worker.export_kernel(function, avals, Path(__file__))
    return Artefact(
        kernel_name="test",
        problem_description="test",
        flops=1,
        tiling_meta={},
        inputs=specs(avals),
        outputs=specs(exported.out_avals),
        program=bytes(exported.serialize()),
        reference_sha256="",
        inputs_sha256="",
        jail="",
        seconds=0.0,
    )


def specs(avals: Any) -> tuple[ArraySpec, ...]:
    return tuple(ArraySpec(shape=tuple(a.shape), dtype=jnp.dtype(a.dtype).name) for a in avals)


def examined(source: str, name: str = "kernel.py") -> tuple[Artefact, problems.Problem]:
    """What the candidate room makes of a kernel file, with the problem frozen from it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        (out / name).write_text(source)
        try:
            record = worker.examine(out / name, out, freeze=True) | {"jail": ""}
        finally:
            sys.modules.pop("kernel_under_judgement", None)
        return room._artefact(record, out, name, 0.0), room._frozen(record, out, name)


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
