"""Turns an untrusted kernel file into an ``Artefact``, through a jailed child process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.candidate import contract, mesh, problem
from ratchet.child import Child, Ending, Limits
from ratchet.values import Artefact
from ratchet.values.status import Refusal, Status

LIMITS = Limits(seconds=120, memory_bytes=8 << 30)
MAX_PROGRAM_BYTES = 64 << 20
MAX_RECORD_BYTES = 1 << 20

WORKER = "ratchet.candidate.worker"


def start(workdir: Path) -> Child:
    """Start a worker; it imports JAX while the caller does other things."""
    return Child(WORKER, directory=workdir)


def examine(
    source: bytes, name: str, *, child: Child, freeze: bool = False, platform: str = "tpu", limits: Limits = LIMITS
) -> tuple[Artefact, problem.Problem | None]:
    """Trace a kernel file in a jailed child, which is closed afterwards: it has run candidate code.

    Args:
      source: The file's bytes.
      name: What to call it in messages, e.g. ``kernel.py``.
      child: A worker from ``start``; its folder is all that it can write to.
      freeze: Also return the problem that this file defines.
      platform: What the kernel is exported for: ``tpu``, ``cpu`` or ``cuda``.

    Raises:
      Refusal: with the status of whatever went wrong. Nothing of the candidate's raises through.
    """
    workdir = child.directory
    with child:
        contract.check_source(source, name)
        (workdir / name).write_bytes(source)
        request = {"kernel": name, "freeze": freeze, "platform": platform, "memory_bytes": limits.memory_bytes}
        (workdir / "request.json").write_text(json.dumps(request))
        ending = child.ask(workdir, limits)
    if ending.how != "answered":
        raise _ended(ending, name, limits)
    record = _read_record(workdir, name)
    if "status" in record:
        raise _refusal_of(record, name)
    if record.get("platform") != platform:
        raise Refusal(Status.IMPORT_FAILED, f"{name} left a record for another platform; wanted {platform}")
    return made(record, workdir, name, freeze=freeze, seconds=ending.seconds)


def made(
    record: Mapping[str, Any], workdir: Path, name: str, *, freeze: bool, seconds: float = 0.0
) -> tuple[Artefact, problem.Problem | None]:
    """What a worker's record and the programs beside it in ``workdir`` are, after every field was checked.

    Raises:
      Refusal: ``IMPORT_FAILED`` where the record is incomplete.
    """
    return _artefact(record, workdir, name, seconds), _frozen(record, workdir, name) if freeze else None


def step(
    source: bytes, name: str, *, child: Child, freeze: bool, platform: str = "tpu"
) -> tuple[tuple[Artefact, problem.Problem | None], str]:
    """The first step of a verdict: ``examine``, with a summary."""
    artefact, frozen = examine(source, name, child=child, freeze=freeze, platform=platform)
    inputs, outputs = " ".join(map(str, artefact.inputs)), " ".join(map(str, artefact.outputs))
    return (artefact, frozen), f"{artefact.kernel_name}: {inputs} -> {outputs}"


def _ended(ending: Ending, name: str, limits: Limits) -> Refusal:
    last = next((line.strip() for line in reversed(ending.tail.splitlines()) if line.strip()), "")
    said = f"; it last printed: {last:.200}" if last else ""
    if ending.how == "timeout":
        return Refusal(Status.TIMEOUT, f"{name} did not finish importing and tracing in {limits.seconds:.0f} s{said}")
    if ending.how == "memory":
        return Refusal(Status.OUT_OF_MEMORY, f"{name} used more than {limits.memory_bytes >> 20} MiB{said}")
    code = ending.returncode
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
    return Refusal(Status.IMPORT_FAILED, f"the process that ran {name} {how} before it was done{said}")


def _read_record(workdir: Path, name: str) -> dict[str, Any]:
    path = workdir / "record.json"
    try:
        if path.is_symlink() or path.stat().st_size > MAX_RECORD_BYTES:
            raise ValueError("the record is a link or too large")
        record = json.loads(path.read_bytes())
        if not isinstance(record, dict):
            raise ValueError(f"the record is {type(record).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(Status.IMPORT_FAILED, f"{name} left no usable record ({error}); wanted a complete one") from None
    return record


def _refusal_of(record: Mapping[str, Any], name: str) -> Refusal:
    status = Status.__members__.get(str(record.get("status")))
    if status is None or not 10 <= status.exit_code < 40:
        return Refusal(Status.IMPORT_FAILED, f"{name} left a record with the status {record.get('status')!r:.60}")
    return Refusal(status, str(record.get("message", ""))[:2000])


def _blob(workdir: Path, name: str) -> bytes:
    path = workdir / name
    if path.is_symlink() or path.stat().st_size > MAX_PROGRAM_BYTES:
        raise ValueError(f"{name} is a link or larger than {MAX_PROGRAM_BYTES >> 20} MiB")
    return path.read_bytes()


def _text(record: Mapping[str, Any], key: str) -> str:
    if not isinstance(record[key], str):
        raise ValueError(f"{key} is {type(record[key]).__name__}, wanted text")
    return record[key]


def _artefact(record: Mapping[str, Any], workdir: Path, name: str, seconds: float) -> Artefact:
    try:
        if type(record["flops"]) is not int:
            raise ValueError("flops is not an int")
        meta, inputs = contract.check_tiling_meta(record["tiling_meta"]), problem.specs(record["inputs"])
        return Artefact(
            kernel_name=_text(record, "kernel_name"),
            problem_description=_text(record, "problem_description"),
            flops=record["flops"],
            tiling_meta=meta,
            inputs=inputs,
            outputs=problem.specs(record["outputs"]),
            mesh=mesh.read(meta, inputs),
            program=_blob(workdir, "kernel.bin"),
            platform=_text(record, "platform"),
            reference_sha256=_text(record, "reference_sha256"),
            inputs_sha256=_text(record, "inputs_sha256"),
            jail=_text(record, "jail"),
            seconds=seconds,
            output_splits=problem.splits(record["output_shardings"]),
        )
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise Refusal(
            Status.IMPORT_FAILED, f"{name} left an incomplete record ({error}); wanted a complete one"
        ) from None


def _work(given: object) -> dict[str, object]:
    """Counts alone: kinds of products with FLOPs, and bytes."""
    if not isinstance(given, dict) or set(given) != {"products", "input_bytes", "output_bytes"}:
        raise ValueError(f"work is {given!r:.80}")
    numbers = [*given["products"].values(), *given["input_bytes"], *given["output_bytes"]]
    if not all(type(n) is int and n >= 0 for n in numbers) or not all(isinstance(k, str) for k in given["products"]):
        raise ValueError(f"work holds {numbers!r:.80}")
    return given


def _frozen(record: Mapping[str, Any], workdir: Path, name: str) -> problem.Problem:
    try:
        inputs = problem.specs(record["inputs"])
        return problem.Problem(
            kernel_name=_text(record, "kernel_name"),
            description=_text(record, "problem_description"),
            inputs=inputs,
            outputs=problem.specs(record["reference_outputs"]),
            mesh=mesh.read(record["tiling_meta"], inputs),
            flops=record["flops"],
            jax_version=_text(record, "jax_version"),
            reference_sha256=_text(record, "reference_sha256"),
            inputs_sha256=_text(record, "inputs_sha256"),
            inputs_program=_blob(workdir, "inputs.bin"),
            reference_program=_blob(workdir, "reference.bin"),
            reference64_program=_blob(workdir, "reference64.bin"),
            mixed_axes=problem.axes_of(record["mixed_axes"], inputs),
            output_splits=problem.splits(record["output_shardings"]),
            work=_work(record["work"]),
        )
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise Refusal(
            Status.IMPORT_FAILED, f"{name} left an incomplete problem ({error}); wanted a complete one"
        ) from None
