"""Compiles an artefact for a TPU with the real compiler, in a child process with a deadline."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ratchet.process import paths
from ratchet.process.sandbox.child import Child, Ending, Limits
from ratchet.process.sandbox.folder import remove, take
from ratchet.process.sandbox.warm import Warm
from ratchet.tpu.chips import Chip
from ratchet.tpu.compiler import environment
from ratchet.tpu.compiler.environment import compiler_of, compiler_version
from ratchet.tpu.compiler.errors import classify, died
from ratchet.tpu.compiler.fast import route
from ratchet.tpu.dump import copies, memory
from ratchet.tpu.dump.files import ALLOCATIONS_PASS, LAST_PASS, LOWERED, load_hlo, tokens_in
from ratchet.tpu.dump.image import OFFSETS_PASS
from ratchet.values import Artefact, Copy, Mesh, Program, records
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import TokenTable

LIMITS = Limits(seconds=300, memory_bytes=12 << 30)
WORKER = "ratchet.tpu.compiler.worker"

PROGRAM = "kernel.bin"
"""The artefact's program, beside what the compiler makes of it."""
RECORD, RECORD_BYTES = "compiled.json", 64 << 20
_KINDS = {
    "changed": records.is_text,
    "refused": records.is_refused,
    "error": records.is_text,
    "hbm_bytes": records.is_count,
    "chip_ids": records.is_counts,
    "code_sha256": records.is_text,
}
"""Fields of its record."""


def start(
    workdir: Path, chip: Chip, warm: Warm | None = None, *, profiles: bool = False, under: Path | None = None
) -> Child:
    """Start a compiler process for one chip. It can answer several requests; each is a fresh compile.

    One that ``profiles`` is for the fast route: it takes the bundles of kernels from a profile. ``under``: the
    environment whose JAX and libtpu compile, where it is not this process's.
    """
    passes = (ALLOCATIONS_PASS, LAST_PASS, OFFSETS_PASS)
    if under is not None:
        return environment.start_under(under, WORKER, workdir, chip, extra_passes=passes)
    return environment.start(WORKER, workdir, chip, extra_passes=passes, profiles=profiles, warm=warm)


def identify(artefact: Artefact, child: Child, limits: Limits = LIMITS) -> tuple[str, TokenTable] | None:
    """Digest of what ``child`` would compile, without its author's names and places, and the table that has them.

    None for a program that cannot be compiled: why is what compiling it says.
    """
    folder = child.request()
    (folder / PROGRAM).write_bytes(artefact.program)
    (folder / "request.json").write_text(json.dumps({"identify": True}))
    if child.ask(folder, limits).how != "answered":
        return None
    try:
        record = _record(folder)
        return (record["code_sha256"], tokens_in(folder)) if "code_sha256" in record else None
    except Refusal:
        return None


def compile_artefact(
    artefact: Artefact,
    chip: Chip,
    folder: Path,
    child: Child,
    limits: Limits = LIMITS,
    *,
    profiler: Callable[[], Child] | None = None,
) -> Program:
    """Compile for ``chip``, or as many as the artefact's mesh has; texts and schedule dumps land in ``folder``.

    With a ``profiler``, a process that ``profiles``, large programs take the fast route: the same texts, sooner.

    Raises:
      Refusal: ``CONTRACT`` for a mesh that is not the whole slice, ``PROBLEM_CHANGED`` for a program that takes or
        gives other arrays than declared, or has them elsewhere, ``VMEM_OVERFLOW``, ``HBM_OVERFLOW``,
        ``UNALIGNED_BLOCK``, ``UNSUPPORTED_PRIMITIVE``, ``COMPILE_FAILED``, ``COMPILER_CRASHED``, ``COMPILE_TIMEOUT``,
        ``INFRASTRUCTURE``, or what :func:`ratchet.tpu.compiler.tokens.tokenise` refuses.
    """
    _check_mesh(artefact.mesh, chip)
    plain = _Plain(artefact=artefact, chip=chip, limits=limits)
    if profiler is not None and route.takes(artefact):
        if program := route.compiled_apart(plain, folder, profiler(), child):
            return program
        remove(folder)
    return replace(plain.read(folder, plain.ask(folder, child)), compiler=compiler_of(child))


@dataclass(frozen=True, kw_only=True)
class _Plain:
    """One program, compiled by one process."""

    artefact: Artefact
    chip: Chip
    limits: Limits

    def ask(self, folder: Path, child: Child, *, stubbed: bool = False) -> Ending:
        """Have ``child`` compile it, ``stubbed`` with kernels that do nothing; what it leaves lands in ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        work, artefact = child.request(), self.artefact
        (work / PROGRAM).write_bytes(artefact.program)
        request = {
            "chip": self.chip.name,
            "axes": artefact.mesh.axes,
            "splits": artefact.mesh.inputs,
            "inputs": [(spec.shape, spec.dtype) for spec in artefact.inputs],
            "outputs": [(spec.shape, spec.dtype) for spec in artefact.outputs],
            "output_splits": artefact.output_splits,
            "stubbed": stubbed,
        }
        (work / "request.json").write_text(json.dumps(request))
        ending = child.ask(work, self.limits)
        take(work, folder)
        return ending

    def read(self, folder: Path, ending: Ending) -> Program:
        """What it left in ``folder``. Raises Refusal as :func:`compile_artefact`."""
        if ending.how != "answered":
            raise died(ending, self.limits)
        return program_in(folder, self.chip, seconds=ending.seconds)


def program_in(folder: Path, chip: Chip, *, seconds: float) -> Program:
    """What a compiler process left in ``folder``, read; ``seconds`` is how long it took.

    Raises:
      Refusal: what the compiler says, as :func:`compile_artefact`; ``COMPILER_CRASHED`` where it left no usable record,
        ``SCHEDULE_UNKNOWN`` or ``INFRASTRUCTURE`` where its files do not read.
    """
    record = _record(folder)
    if "changed" in record:
        raise Refusal(
            Status.PROBLEM_CHANGED,
            f"the program is not what its kernel file declares: {record['changed']}. Does the file change JAX?",
        )
    tokens = tokens_in(folder / "schedule")
    if "refused" in record:
        status, message = record["refused"]
        raise Refusal(Status[status], message)
    if "error" in record:
        raise classify(record["error"], folder / "schedule", tokens, chip)
    hlo = load_hlo(folder)
    return Program(
        chip=chip.name,
        compiler=compiler_version(),
        dump_dir=folder,
        footprint=memory.footprint(hlo, folder / "schedule", chip, hbm_bytes=record["hbm_bytes"]),
        copies=tuple(
            replace(copy, cause=tokens.explain(copy.cause)) for copy in copies.find(hlo, load_hlo(folder, LOWERED))
        ),
        kernels=tuple(tokens.name(name) for name in hlo.kernels()),
        chip_ids=tuple(record["chip_ids"]),
        seconds=seconds,
    )


def error_in(folder: Path) -> str:
    """What the compiler said of a program that it refused, in its own words; ``""`` where it left none."""
    try:
        return str(_record(folder).get("error", ""))
    except Refusal:
        return ""


def _record(folder: Path) -> records.Record:
    """What a compiler process says of its request. Raises Refusal ``COMPILER_CRASHED`` where it says nothing usable."""
    try:
        return records.read(paths.read(folder / RECORD, RECORD_BYTES), _KINDS, _no_record)
    except (OSError, ValueError) as error:
        raise _no_record(str(error)) from None


def _no_record(why: str) -> Refusal:
    return Refusal(Status.COMPILER_CRASHED, f"the TPU compiler's process left no usable record: {why:.200}")


def step(
    artefact: Artefact, chip: Chip, folder: Path, child: Child, *, profiler: Callable[[], Child]
) -> tuple[Program, str]:
    """A step of a verdict: ``compile_artefact``, with a summary."""
    program = compile_artefact(artefact, chip, folder, child, profiler=profiler)
    many = chip.name
    if artefact.mesh.chips > 1:
        many = f"the {artefact.mesh.chips} chips of a {chip.slice_of(artefact.mesh.chips).topology} slice"
    return program, f"{program.compiler} for {many}"


def _check_mesh(mesh: Mesh, chip: Chip) -> None:
    for name, _ in mesh.axes:  # they are the only names of the author's that the compiler reads
        if not (name.isascii() and name.isidentifier() and len(name) <= 40):
            raise Refusal(
                Status.CONTRACT, f"get_tiling_meta() names an axis of the mesh {name!r:.80}; wanted a word of letters"
            )
    try:
        chip.slice_of(mesh.chips)
    except Refusal as refusal:
        raise Refusal(Status.CONTRACT, f"get_tiling_meta() declares {refusal.message}") from None


def copy_trap(program: Program) -> tuple[tuple[Copy, ...], str]:
    """A step of a verdict: the copies that the compiled program makes, in words. Copies cost, they do not fail."""
    if not program.copies:
        return (), "none"
    injected = sum(c.injected for c in program.copies)
    total = sum(c.size_bytes for c in program.copies)
    asked = len(program.copies) - injected
    return program.copies, f"{injected} injected by the compiler, {asked} asked for, {total / (1 << 20):.1f} MiB in all"
