"""Turns an untrusted kernel file into an ``Artefact``, through a jailed child process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.exam.candidate import contract
from ratchet.exam.candidate.source_closure import SourceClosure
from ratchet.exam.problem import mesh, problem
from ratchet.process.sandbox.child import Child, Ending, Limits, Walls
from ratchet.process.sandbox.folder import Folder
from ratchet.process.sandbox.warm import Warm
from ratchet.tpu.chips import V5E, Chip
from ratchet.values import Artefact
from ratchet.values.status import KILLED, Ended, Refusal, Status

LIMITS = Limits(seconds=120, memory_bytes=8 << 30)
MAX_PROGRAM_BYTES = 64 << 20
MAX_RECORD_BYTES = 1 << 20

WORKER = "ratchet.exam.candidate.worker"
REQUEST = "request.json"
RECORD = "record.json"
"""What a worker leaves, beside its programs."""
INPUTS, REFERENCE = "inputs.jaxpr", "reference.jaxpr"
"""What it leaves of a problem: see ``freezing.py``."""
FILES, PROGRAM = "tree.zip", "given.bin"
"""What a project's problem comes with."""
WALLS = Walls(in_memory=True, folder_bytes=512 << 20, folder_files=4096)

LOST = {
    "namespaces": "the kernel file shares processes and the network's names with the system",
    "landlock": "the kernel file can read the user's files, and write them",
    "seccomp": "the kernel file can start processes",
}
"""What a wall that is missing would have kept, by its name."""


@dataclass(frozen=True, kw_only=True)
class ProjectKernel:
    """A problem that a project names, with its kernel, exported by a process of its own."""

    program: bytes
    """The kernel: a ``jax.export`` artefact, of any JAX."""
    problem: Mapping[str, Any]
    """The problem as plain JSON: see ``ratchet.exam.candidate.generated``."""
    files: SourceClosure
    """What the reference imports of the user's files."""


def start(workdir: Path, *, walls: Walls = WALLS, warm: Warm | None = None) -> Child:
    """Start a worker, of ``warm`` if there is one; else it imports JAX while the caller does other things."""
    return Child(WORKER, directory=workdir, walls=walls, warm=warm)


@dataclass(frozen=True, kw_only=True)
class TraceRequest:
    """What a kernel file is traced for."""

    source: bytes
    """The file's bytes."""
    name: str
    """What to call it in messages, e.g. ``kernel.py``."""
    freeze: bool = False
    """Leave the problem that this file defines, as data, and no program: ``kernel_fn`` is not called."""
    platform: str = "tpu"
    """What the kernel is exported for: ``tpu``, ``cpu`` or ``cuda``."""
    chip: Chip = V5E
    """The TPU that a kernel sees when it asks for one."""
    limits: Limits = LIMITS
    project: ProjectKernel | None = None
    """The problem and the exported kernel of a project, whose file ``name`` is: nothing of it is executed here."""

    @property
    def document(self) -> bytes:
        """What the worker reads."""
        project = self.project and {
            "problem": {**self.project.problem, "file": self.name},
            "files": FILES,
            "program": PROGRAM,
        }
        document = {
            "kernel": self.name,
            "freeze": self.freeze,
            "platform": self.platform,
            "chip": self.chip.name,
            "memory_bytes": self.limits.memory_bytes,
            "project": project,
        }
        return json.dumps(document).encode()


@dataclass(frozen=True, kw_only=True)
class Tracing:
    """A worker from ``start``, which can write to its folder alone, and the file that it traces."""

    request: TraceRequest
    child: Child
    ending: Callable[[], Ending]
    """Waits for its answer. Raises Refusal for a file that is none of a kernel."""


def tracing(request: TraceRequest, child: Child) -> Tracing:
    """One that begins once its answer is waited for."""
    return Tracing(request=request, child=child, ending=functools.partial(_sent, request, child))


def tracing_already(request: TraceRequest, child: Child) -> Tracing:
    """One that begins now, beside what the caller does."""
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="candidate")
    ending = thread.submit(_sent, request, child)
    thread.shutdown(wait=False)  # it ends with the answer, or with the child
    return Tracing(request=request, child=child, ending=ending.result)


def result(tracing: Tracing, *, again: bool = False) -> Artefact:
    """What a worker makes of a kernel file. It is closed afterwards: it has run candidate code.

    Args:
        tracing: The worker, and its file.
        again: Leave the child for other versions of the same file. Then one may know what another did, so that what
          comes of it is good for a table and for no row.

    Raises:
      Refusal: with the status of whatever went wrong. Nothing of the candidate's raises through.
    """
    request, child = tracing.request, tracing.child
    with contextlib.nullcontext() if again else child:
        jail, ending = lost(child.missing), _answered(tracing, again=again)
        artefact = read(child.folder, request.name, platform=request.platform)
        program = request.project.program if request.project else artefact.program
        return dataclasses.replace(artefact, program=program, jail=jail, seconds=ending.seconds)


def definition(request: TraceRequest, child: Child) -> dict[str, bytes]:
    """The problem that a kernel file defines, by the names of its two files. Raises as ``result``; closes ``child``."""
    with child:
        _answered(tracing(dataclasses.replace(request, freeze=True), child))
        return read_definition(child.folder, request.name)


def _answered(tracing: Tracing, *, again: bool = False) -> Ending:
    ending = tracing.ending()
    if not again:
        tracing.child.end()  # from here on nothing can change what it left
    if ending.how != "answered":
        raise ended(ending, tracing.request.name, tracing.request.limits)
    return ending


def _sent(request: TraceRequest, child: Child) -> Ending:
    """Raises Refusal for a file that is none of a kernel."""
    files = {request.name: request.source}
    if request.project is None:
        contract.check_source(request.source, request.name)
    else:
        files = {FILES: request.project.files.zipped(), PROGRAM: request.project.program}
    for left in (request.name, REQUEST, RECORD):  # by another version of the file
        child.folder.unlink(left)
    for name, content in {**files, REQUEST: request.document}.items():
        child.folder.write(name, content)
    return child.ask(child.directory, request.limits)


def examine(source: bytes, name: str, *, child: Child, again: bool = False, **others: Any) -> Artefact:
    """Trace a kernel file by a worker from ``start``. ``others``: fields of ``TraceRequest``. Raises as ``result``."""
    return result(tracing(TraceRequest(source=source, name=name, **others), child), again=again)


def step(tracing: Tracing, *, again: bool = False) -> tuple[Artefact, str]:
    """The first step of a verdict: ``result``, with a summary."""
    artefact = result(tracing, again=again)
    inputs, outputs = " ".join(map(str, artefact.inputs)), " ".join(map(str, artefact.outputs))
    return artefact, f"{artefact.kernel_name}: {inputs} -> {outputs}"


def read(folder: Folder, name: str, *, platform: str = "tpu") -> Artefact:
    """What a worker left in ``folder``, every field checked.

    Raises:
      Refusal: with the status that it recorded; ``IMPORT_FAILED`` where there is no usable record.
    """
    record = read_record(folder, name)
    if record.get("platform") != platform:
        raise Refusal(Status.IMPORT_FAILED, f"{name} left a record for another platform; wanted {platform}")
    with complete(name, "record"):
        return _artefact(record, folder)


def read_definition(folder: Folder, name: str) -> dict[str, bytes]:
    """As ``definition``, of a folder. Raises as ``read``."""
    read_record(folder, name)
    with complete(name, "problem"):
        return {file: folder.read(file, MAX_PROGRAM_BYTES) for file in (INPUTS, REFERENCE)}


@contextlib.contextmanager
def complete(name: str, what: str) -> Iterator[None]:
    """Whatever is missing of what a worker left, or is of another form, is a refusal: ``IMPORT_FAILED``."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OSError) as error:
        message = f"{name} left an incomplete {what} ({error}); wanted a complete one"
        raise Refusal(Status.IMPORT_FAILED, message) from None


def lost(missing: Sequence[str]) -> str:
    """What the walls that are missing would have kept, in words; ``""`` where none is."""
    if not missing:
        return ""
    return f"the jail lacks {' and '.join(missing)} here: " + "; ".join(LOST[name] for name in missing)


def ended(ending: Ending, name: str, limits: Limits) -> Refusal:
    """Why a worker did not answer."""
    last = next((line.strip() for line in reversed(ending.tail.splitlines()) if line.strip()), "")
    said = f"; it last printed: {last:.200}" if last else ""
    if ending.how == "timeout":
        return Ended(Status.TIMEOUT, f"{name} did not finish importing and tracing in {limits.seconds:.0f} s{said}")
    if ending.how == "disk":
        return Ended(Status.OUT_OF_MEMORY, f"{name} wrote more than a kernel file may{said}")
    if ending.how == "memory":
        return Ended(Status.OUT_OF_MEMORY, f"{name} used more than {limits.memory_bytes >> 20} MiB{said}")
    code = ending.returncode
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
    kind = Ended if code in KILLED else Refusal
    return kind(Status.IMPORT_FAILED, f"the process that ran {name} {how} before it was done{said}")


def read_record(folder: Folder, name: str) -> dict[str, Any]:
    """What a worker wrote down.

    Raises:
      Refusal: with the status that it recorded; ``IMPORT_FAILED`` where there is no usable record.
    """
    try:
        record = json.loads(folder.read(RECORD, MAX_RECORD_BYTES))
        if not isinstance(record, dict):
            raise ValueError(f"the record is {type(record).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(Status.IMPORT_FAILED, f"{name} left no usable record ({error}); wanted a complete one") from None
    if "status" not in record:
        return record
    status = Status.__members__.get(str(record["status"]))
    if status is None or not 10 <= status.exit_code < 40:
        raise Refusal(Status.IMPORT_FAILED, f"{name} left a record with the status {record['status']!r:.60}")
    raise Refusal(status, str(record.get("message", ""))[:2000])


def _artefact(record: Mapping[str, Any], folder: Folder) -> Artefact:
    contract.check_flops(record["flops"])
    meta, inputs = contract.check_tiling_meta(record["tiling_meta"]), problem.specs(record["inputs"])
    return Artefact(
        kernel_name=problem.text(record, "kernel_name"),
        problem_description=problem.text(record, "problem_description"),
        flops=record["flops"],
        tiling_meta=meta,
        inputs=inputs,
        outputs=problem.specs(record["outputs"]),
        mesh=mesh.read(meta, inputs),
        program=folder.read("kernel.bin", MAX_PROGRAM_BYTES),
        platform=problem.text(record, "platform"),
        reference_sha256=problem.text(record, "reference_sha256"),
        inputs_sha256=problem.text(record, "inputs_sha256"),
        jail="",
        seconds=0.0,
        output_splits=problem.splits(record["output_shardings"]),
    )
