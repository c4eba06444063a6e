"""Programs for the judge's tests, exported here rather than in the jail: these are ours, and it is faster."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from benchmarks.lib.programs import of_function, of_source
from ratchet.exam.judge.request import Request
from ratchet.exam.problem import problem as problems
from ratchet.tpu.chips import CHIPS, V5E
from ratchet.values import Artefact, Conditions, Timeline


def artefact(function: Callable[..., Any], *inputs: tuple[tuple[int, ...], Any]) -> Artefact:
    """A program alone, without a problem around it. ``inputs`` are (shape, dtype)."""
    return of_function(function, [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in inputs])


@functools.cache
def examined(source: str, name: str = "kernel.py") -> tuple[Artefact, problems.Problem]:
    """What the candidate room makes of a kernel file, with the problem frozen from it."""
    made, problem = of_source(source, name)
    assert problem is not None
    return made, problem


def request_of(root: Path, source: str, evaluator: str = "v5e-model", **options: Any) -> Request:
    """A request to judge this source as the file ``kernel.py`` in ``root``."""
    kernel = root / "kernel.py"
    kernel.write_text(source)
    chip = evaluator.removesuffix("-model") if evaluator.endswith("-model") else V5E.name
    conditions = Conditions(evaluator=evaluator, chip=chip, compiler="", seal="", problem="")
    return Request(kernel=kernel, root=root, kernel_rel=kernel.name, conditions=conditions, chip=CHIPS[chip], **options)


def freeze(root: Path, source: str) -> Path:
    """Write the problem of this source beside the file ``kernel.py`` in ``root``; returns the lock."""
    lock = problems.lock_path(root / "kernel.py")
    lock.write_bytes(problems.encode(examined(source)[1]))
    return lock


def run_of(**known: Any) -> Timeline:
    """A modelled run on one chip, of which only these fields are known."""
    return Timeline(
        **{**dict.fromkeys(Timeline.__dataclass_fields__, 0), "chips": (), "links": (), "not_modelled": (), **known}
    )


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
