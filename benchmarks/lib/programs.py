"""Our own kernel files and plain functions as the judge's artefacts, and their modelled runs. Imports JAX for the CPU.

For benchmarks only: what is ours needs no jail, so it is traced in this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

from ratchet.exam.candidate import tracer, worker
from ratchet.exam.judge import freezing, freezing_worker
from ratchet.exam.judge.workers import Workers
from ratchet.exam.problem import problem as problems
from ratchet.process.sandbox.folder import Folder
from ratchet.tpu import latency
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler import compile as compiling
from ratchet.tpu.dump.files import load_hlo
from ratchet.values import ArraySpec, Artefact, Mesh, Program, Timeline


def with_four_devices() -> None:
    """Lets the CPU have as many, as in the judge's child; before JAX is asked for any."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"


def examined(file: Path, *, freeze: bool) -> tuple[Artefact, problems.Problem | None]:
    """A kernel file as the judge reads it, traced in this process; what a worker leaves is in the file's folder."""
    folder = file.parent

    def leave(record: Mapping[str, Any]) -> None:
        sys.modules.pop("kernel_under_judgement", None)
        (folder / tracer.RECORD).write_text(json.dumps(record))

    with contextlib.closing(Folder.at(folder)) as left:
        leave(worker.examine(file, folder))
        artefact = tracer.read(left, file.name)
        if not freeze:
            return artefact, None
        leave(worker.define(file, folder))
        leave(freezing_worker.made(json.loads(freezing.request(artefact)), folder))
        return artefact, freezing.read(left, artefact)


def of_source(source: str, name: str = "kernel.py", *, freeze: bool = True) -> tuple[Artefact, problems.Problem | None]:
    """A seven-symbol file as artefact, with the problem frozen from it where ``freeze``."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        (out / name).write_text(source)
        return examined(out / name, freeze=freeze)


def of_function(function: Callable[..., Any], avals: Sequence[Any], mesh: Mesh | None = None) -> Artefact:
    """A function of arrays alone, without a problem around it."""
    exported, _ = worker.traced_kernel(function, list(avals), Path(__file__), mesh)
    specs = [
        tuple(ArraySpec(shape=tuple(a.shape), dtype=jnp.dtype(a.dtype).name) for a in side)
        for side in (avals, exported.out_avals)
    ]
    return Artefact(
        kernel_name=getattr(function, "__name__", "program"),
        problem_description="",
        flops=1,
        tiling_meta={},
        inputs=specs[0],
        outputs=specs[1],
        mesh=mesh or Mesh(),
        program=bytes(exported.serialize()),
        reference_sha256="",
        inputs_sha256="",
        jail="",
        seconds=0.0,
    )


def compiled(artefact: Artefact, workers: Workers) -> Program:
    """Compile for v5e, or its slice. Raises Refusal as the judge does."""
    return compiling.compile_artefact(artefact, V5E, workers.folder("program"), workers.compiler)


def modelled(artefact: Artefact, workers: Workers, steering: Mapping[int | str, Any] | None = None) -> Timeline:
    """The modelled run. Raises Refusal as the judge does.

    ``steering`` are the integer inputs by position; by ``"kernel:i"`` what XLA computes for operand ``i`` of kernels
    whose names begin so.
    """
    program = compiled(artefact, workers)
    values = dict(steering or {})
    for operand in [name for name in values if isinstance(name, str)]:
        name, _, number = operand.partition(":")
        value, kernels = values.pop(operand), load_hlo(program.dump_dir).kernels()
        values |= {f"{kernel}:{number}": value for kernel in kernels if kernel.startswith(name)}
    return latency.step(program, V5E, artefact.mesh, values)[0]


def struct(shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def largest_error(outputs: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """Largest error of any output over its largest value; what is not finite has to be the same."""
    worst = 0.0
    for got, right in zip(outputs, wanted, strict=True):
        wide, exact = got.astype(np.float64), right.astype(np.float64)
        if wide.shape != exact.shape:
            return float("inf")
        finite = np.isfinite(exact)
        if not np.array_equal(wide[~finite], exact[~finite], equal_nan=True) or not np.isfinite(wide[finite]).all():
            return float("inf")
        if finite.any():
            scale = max(float(np.abs(exact[finite]).max()), 1e-30)
            worst = max(worst, float(np.abs(wide[finite] - exact[finite]).max()) / scale)
    return worst
