"""The frozen problem: what every candidate of one kernel file has to solve.

Frozen at the baseline from the kernel file of that moment and kept in ``kernel.py.lock.json``, which git tracks.
The lock holds programs, not Python: the input generator, the reference in its own dtypes and the reference in
float64, all exported for the CPU. A later candidate's own reference, inputs and FLOPs are only compared with it.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import importlib.metadata
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.exam.problem import mesh as meshes
from ratchet.exam.problem.draws import Drawn, drawn_of
from ratchet.process import paths
from ratchet.process.boot.home import PROGRAM
from ratchet.values import ArraySpec, Artefact, Mesh
from ratchet.values.status import Refusal, Status

LOCK_VERSION = 2
_TEXTS = ("kernel_name", "description", "jax_version", "reference_sha256", "inputs_sha256")
PROGRAMS = ("inputs_program", "reference_program", "reference64_program", "blocked_program")
"""The last is there only where a reference is large."""
MAX_LOCK_BYTES = 1 << 29
"""Four programs of the largest size that a kernel file may leave, as text."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of the outputs that have nothing to do with each other: any of them can be evaluated without the others."""

    block: int
    """How many are evaluated at a time."""
    axes: tuple[int, ...]
    """The axis of each output that they lie along."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One frozen problem. The programs are ``jax.export`` artefacts for platform ``cpu``."""

    kernel_name: str
    description: str
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]
    mesh: Mesh
    """How the inputs lie on the chips before the program starts: no candidate's choice."""
    flops: int
    jax_version: str
    reference_sha256: str
    inputs_sha256: str
    inputs_program: bytes
    """``uint32[2] -> inputs``: the arrays as a function of raw key data."""
    reference_program: bytes
    """``inputs -> outputs`` in the problem's own dtypes."""
    reference64_program: bytes
    """``inputs -> outputs`` in float64, then what honest arithmetic may lose in each; needs x64 enabled.

    Where there are ``rows``, ``(count, rows, *inputs)``: the rows of these numbers, int32 for each row of an output, so
    many blocks of them (``Blocks.run``).
    """
    blocked_program: bytes = b""
    """What ``reference_program`` computes, some rows at a time, where it is large (``blocks.py``); else nothing."""
    rows: Rows | None = None
    """None where the reference is evaluated as a whole."""
    mixed_axes: tuple[tuple[int, ...], ...] = ()
    """For each input the axes along which the reference mixes its elements."""
    domains: tuple[tuple[float | None, float | None] | None, ...] = ()
    """For each input where made numbers have to stay, see ``domain.py``; nothing where no input has to."""
    ordered_axes: tuple[tuple[int, ...] | None, ...] = ()
    """For each input the axes along which its elements are ordered; None where none are. Nothing where all are None."""
    whole_axes: tuple[tuple[int, ...], ...] = ()
    """For each input those along which whole blocks are zero or equal. Nothing in a problem that was frozen before
    there were any: its losses may not hold for them."""
    total_axes: tuple[tuple[int, ...], ...] = ()
    """For each input all its axes, where one number is made of all of it. Nothing where there is none, and in a problem
    that was frozen before."""
    drawn: tuple[Drawn | None, ...] = ()
    """For each integer input how it is drawn; None of others. Nothing where all are None."""
    output_splits: tuple[tuple[tuple[str, ...], ...] | None, ...] = ()
    """How each output lies on the chips, as ``Mesh.inputs`` says it of inputs; None where that is open."""
    work: Mapping[str, object] = field(default_factory=dict)
    """What no program can avoid: see ``work.Work``, as plain JSON."""

    @property
    def compulsory_bytes(self) -> int:
        """Inputs and outputs, each moved once."""
        return sum(array_bytes(spec) for spec in (*self.inputs, *self.outputs))

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the lock's content."""
        return hashlib.sha256(encode(self)).hexdigest()

    @property
    def short(self) -> str:
        """The digest's first 16 hex digits, as rows and reports carry it."""
        return self.digest[:16]


def array_bytes(spec: ArraySpec) -> int:
    """Bytes of one array without padding."""
    digits = re.match(r"[a-z]*?(\d+)", spec.dtype.replace("bfloat", "float"))
    bits = 8 if spec.dtype == "bool" or digits is None else int(digits[1])
    return -(-math.prod(spec.shape) * bits // 8)


def lock_path(kernel: Path) -> Path:
    """``kernel.py`` -> ``kernel.py.lock.json``, beside it."""
    return kernel.with_name(kernel.name + ".lock.json")


def encode(problem: Problem) -> bytes:
    """The lock file's bytes: canonical JSON, one key per line."""
    document = {
        "lock_version": LOCK_VERSION,
        "kernel_name": problem.kernel_name,
        "description": problem.description,
        "inputs": [{"shape": list(s.shape), "dtype": s.dtype} for s in problem.inputs],
        "outputs": [{"shape": list(s.shape), "dtype": s.dtype} for s in problem.outputs],
        **meshes.plain(problem.mesh),
        "output_shardings": plain_splits(problem.output_splits),
        "mixed_axes": [list(axes) for axes in problem.mixed_axes],
        "work": dict(problem.work),
        "flops": problem.flops,
        "jax_version": problem.jax_version,
        "reference_sha256": problem.reference_sha256,
        "inputs_sha256": problem.inputs_sha256,
    }
    for name in PROGRAMS if problem.blocked_program else PROGRAMS[:-1]:
        document[name] = base64.b64encode(getattr(problem, name)).decode()
    if problem.domains:
        document["domains"] = [None if one is None else list(one) for one in problem.domains]
    if any(axes is not None for axes in problem.ordered_axes):
        document["ordered_axes"] = [axes if axes is None else list(axes) for axes in problem.ordered_axes]
    if problem.whole_axes:
        document["whole_axes"] = [list(axes) for axes in problem.whole_axes]
    if any(problem.total_axes):
        document["total_axes"] = [list(axes) for axes in problem.total_axes]
    if any(problem.drawn):
        document["drawn"] = [one and [one.kind, one.first, one.last] for one in problem.drawn]
    if problem.rows:
        document["rows"] = {"block": problem.rows.block, "axes": list(problem.rows.axes)}
    return (json.dumps(document, indent=1, ensure_ascii=True) + "\n").encode()


def decode(data: bytes, name: str) -> Problem:
    """Read a lock file's bytes.

    Raises:
      Refusal: ``PROBLEM_CHANGED`` if they are not what ``encode`` writes.
    """
    try:
        document = json.loads(data)
        if document["lock_version"] != LOCK_VERSION:
            raise ValueError(f"lock_version {document['lock_version']}, wanted {LOCK_VERSION}")
        programs = {name: base64.b64decode(document.get(name, ""), validate=True) for name in PROGRAMS}
        problem = of_document(document, programs)
    except (
        ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, binascii.Error, Refusal,
    ) as error:  # fmt: skip
        raise Refusal(
            Status.PROBLEM_CHANGED,
            f"{name} is not a problem lock ({type(error).__name__}: {error}); restore it with git, "
            f"or start a new problem on purpose with {PROGRAM} --new-problem",
        ) from None
    if encode(problem) != data:
        raise Refusal(Status.PROBLEM_CHANGED, f"{name} was edited or reformatted; restore it with git")
    return problem


def of_document(document: Mapping[str, Any], programs: Mapping[str, Any]) -> Problem:
    """A problem from plain JSON as ``encode`` has it, and its programs. Raises as Python does."""
    inputs, outputs = specs(document["inputs"]), specs(document["outputs"])
    texts: Mapping[str, Any] = {name: text(document, name) for name in _TEXTS}
    return Problem(
        inputs=inputs,
        outputs=outputs,
        mesh=meshes.read(document, inputs),
        flops=int(document["flops"]),
        rows=rows_of(document.get("rows"), outputs),
        mixed_axes=axes_of(document["mixed_axes"], inputs),
        domains=domains_of(document.get("domains"), inputs),
        ordered_axes=ordered_of(document.get("ordered_axes"), inputs),
        whole_axes=axes_of(document["whole_axes"], inputs) if "whole_axes" in document else (),
        total_axes=axes_of(document["total_axes"], inputs) if any(document.get("total_axes", ())) else (),
        drawn=drawn_of(document.get("drawn"), inputs),
        output_splits=splits(document["output_shardings"]),
        work=dict(document["work"]),
        **texts,
        **programs,
    )


def text(document: Mapping[str, Any], key: str) -> str:
    """A text of plain JSON. Raises ``ValueError`` where it is something else."""
    if not isinstance(document[key], str):
        raise ValueError(f"{key} is {type(document[key]).__name__}, wanted text")
    return str(document[key])


def read(lock: Path) -> Problem | None:
    """The frozen problem beside a kernel, or None if there is none yet.

    Raises:
      Refusal: as ``decode``; also where it is no regular file.
    """
    if not paths.exists(lock):
        return None
    try:
        return decode(paths.read(lock, MAX_LOCK_BYTES), lock.name)
    except (OSError, ValueError) as error:
        raise Refusal(Status.PROBLEM_CHANGED, f"{lock.name} cannot be read: {error}; restore it with git") from None


def is_of_another_jax(artefact: Artefact, problem: Problem) -> bool:
    """Whether another JAX froze a problem, so that the file's own may be the same although digests differ."""
    return problem.jax_version != importlib.metadata.version("jax") and digests(artefact) != digests(problem)


def digests(one: Artefact | Problem) -> tuple[str, str]:
    """Those of the texts of reference and inputs, which each JAX writes in its own way."""
    return one.reference_sha256, one.inputs_sha256


def specs(entries: object) -> tuple[ArraySpec, ...]:
    """Array specs from plain JSON.

    Raises:
      ValueError: if an entry is not ``{"shape": [int...], "dtype": str}``.
    """
    if not isinstance(entries, list):
        raise ValueError(f"array specs are {type(entries).__name__}, wanted a list")
    found = []
    for entry in entries:
        shape, dtype = entry["shape"], entry["dtype"]
        if not (isinstance(dtype, str) and isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)):
            raise ValueError(f"not an array spec: {entry!r:.80}")
        found.append(ArraySpec(shape=tuple(shape), dtype=dtype))
    return tuple(found)


def axes_of(entries: object, inputs: Sequence[ArraySpec]) -> tuple[tuple[int, ...], ...]:
    """Mixed axes from plain JSON.

    Raises:
      ValueError: unless they are one list of axes for each input.
    """
    if not isinstance(entries, list) or len(entries) != len(inputs):
        raise ValueError(f"mixed_axes is {entries!r:.80}, wanted one list for each of {len(inputs)} inputs")
    for axes, spec in zip(entries, inputs, strict=True):
        if not isinstance(axes, list) or not all(type(a) is int and 0 <= a < len(spec.shape) for a in axes):
            raise ValueError(f"mixed_axes: {axes!r:.80} are no axes of {spec}")
    return tuple(tuple(axes) for axes in entries)


def domains_of(entries: object, inputs: Sequence[ArraySpec]) -> tuple[tuple[float | None, float | None] | None, ...]:
    """Domains from plain JSON; nothing where no input has one.

    Raises:
      ValueError: unless each is null, or two ends of which each is null or a number, in order.
    """
    if entries is None:
        return ()
    found = [None if one is None else tuple(one) for one in entries] if isinstance(entries, list) else []
    for one in found:
        ends = [end for end in one or () if end is not None]
        if not all(isinstance(end, float) and math.isfinite(end) for end in ends) or ends != sorted(ends):
            raise ValueError(f"not a domain: {one!r:.80}")
        if one is not None and (len(one) != 2 or not ends):
            raise ValueError(f"not a domain: {one!r:.80}")
    if len(found) != len(inputs) or not any(found):
        raise ValueError(f"domains are {entries!r:.80}, wanted one for each of {len(inputs)} inputs, not all null")
    return tuple(found)


def ordered_of(entries: object, inputs: Sequence[ArraySpec]) -> tuple[tuple[int, ...] | None, ...]:
    """Ordered axes from plain JSON. Raises ``ValueError`` as ``axes_of``; null stands for an input without any."""
    if entries is None:
        return ()
    given = entries if isinstance(entries, list) else [entries]
    known = axes_of([[] if axes is None else axes for axes in given], inputs)
    found = tuple(None if axes is None else one for axes, one in zip(given, known, strict=True))
    return found if any(axes is not None for axes in found) else ()


def rows_of(entry: object, outputs: Sequence[ArraySpec]) -> Rows | None:
    """Rows from plain JSON.

    Raises:
      ValueError: unless there are none, or blocks of them that make up an axis of each output.
    """
    if entry is None:
        return None
    block, axes = (entry.get("block"), entry.get("axes")) if isinstance(entry, dict) else (None, None)
    if type(block) is int and block > 0 and isinstance(axes, list) and len(axes) == len(outputs):
        pairs = list(zip(axes, outputs, strict=True))
        if all(type(axis) is int and 0 <= axis < len(spec.shape) for axis, spec in pairs):
            length, *others = {spec.shape[axis] for axis, spec in pairs}
            if length and not others and not length % block:
                return Rows(block=block, axes=tuple(axes))
    raise ValueError(f"rows are {entry!r:.80}, wanted blocks of them that make up an axis of each output")


def splits(entries: object) -> tuple[tuple[tuple[str, ...], ...] | None, ...]:
    """Output shardings from plain JSON.

    Raises:
      ValueError: unless each is null or a list of null, or a list of axis names.
    """
    if not isinstance(entries, list):
        raise ValueError(f"output_shardings is {entries!r:.80}, wanted a list")
    found: list[tuple[tuple[str, ...], ...] | None] = []
    for entry in entries:
        dimensions = [[] if names is None else names for names in entry] if isinstance(entry, list) else None
        if entry is not None and dimensions is None:
            raise ValueError(f"not a sharding: {entry!r:.80}")
        if not all(isinstance(names, list) and all(isinstance(n, str) for n in names) for names in dimensions or []):
            raise ValueError(f"not a sharding: {entry!r:.80}")
        found.append(None if dimensions is None else tuple(map(tuple, dimensions)))
    return tuple(found)


def plain_splits(found: Sequence[tuple[tuple[str, ...], ...] | None]) -> list[object]:
    """Output shardings as plain JSON."""
    return [None if one is None else [list(names) or None for names in one] for one in found]


def check_unchanged(artefact: Artefact, problem: Problem) -> None:
    """Refuse a candidate whose own copy of the problem differs from the frozen one, naming every difference.

    Raises:
      Refusal: ``PROBLEM_CHANGED``.
    """
    pairs: Mapping[str, tuple[object, object]] = {
        "KERNEL_NAME": (artefact.kernel_name, problem.kernel_name),
        "PROBLEM_DESCRIPTION": (artefact.problem_description, problem.description),
        "compute_flops()": (artefact.flops, problem.flops),
        "input shapes": (" ".join(map(str, artefact.inputs)), " ".join(map(str, problem.inputs))),
        "mesh and input_shardings": (str(meshes.plain(artefact.mesh)), str(meshes.plain(problem.mesh))),
        "where the outputs lie": (
            str(plain_splits(artefact.output_splits)),
            str(plain_splits(problem.output_splits)),
        ),
        "reference_fn": (artefact.reference_sha256[:12], problem.reference_sha256[:12]),
        "generate_inputs": (artefact.inputs_sha256[:12], problem.inputs_sha256[:12]),
    }
    changed = [
        f"{what} is {got!r:.90}, frozen as {wanted!r:.90}" for what, (got, wanted) in pairs.items() if got != wanted
    ]
    if not changed:
        return
    hint = f"restore it, or start a new problem on purpose with {PROGRAM} --new-problem"
    raise Refusal(Status.PROBLEM_CHANGED, "; ".join(changed) + f" ({hint})")


def check_outputs(artefact: Artefact, problem: Problem) -> None:
    """Refuse a kernel whose outputs have another shape or dtype than the frozen reference's.

    Raises:
      Refusal: ``WRONG_SHAPE``.
    """
    if artefact.outputs != problem.outputs:
        raise Refusal(
            Status.WRONG_SHAPE,
            f"kernel_fn returns {' '.join(map(str, artefact.outputs))}, "
            f"the problem wants {' '.join(map(str, problem.outputs))}",
        )
