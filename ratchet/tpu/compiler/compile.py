"""Compiles an artefact for a TPU with the real compiler, in a child process with a deadline."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ratchet.process.sandbox.child import Child, Ending, Limits
from ratchet.process.sandbox.folder import read_file, remove, take
from ratchet.process.sandbox.warm import Warm
from ratchet.tpu.chips import Chip
from ratchet.tpu.compiler import environment
from ratchet.tpu.compiler.environment import compiler_version
from ratchet.tpu.compiler.errors import classify, died
from ratchet.tpu.dump import overflow
from ratchet.values import Artefact, Copy, Mesh, Program, records
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import TokenTable

LIMITS = Limits(seconds=300, memory_bytes=12 << 30)
WORKER = "ratchet.tpu.compiler.worker"

LARGE_BYTES = 64 << 10
"""Of a program whose dumps of bundles take the compiler longer than it takes to start two more of it, by far:
``kernel.py`` has 89 KB. ``python -m benchmarks.compiled OUT kernel.py`` prints seconds of both ways."""

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


def start(workdir: Path, chip: Chip, warm: Warm | None = None, *, lists: bool = True, profiles: bool = False) -> Child:
    """Start a compiler process for one chip. It can answer several requests; each is a fresh compile.

    One that ``lists`` dumps what names the buffers of a kernel that does not fit, and what ``around.py`` compares: half
    of all text that it writes. One that ``profiles`` takes the bundles of kernels from a profile (``scheduled.py``).
    """
    from ratchet.tpu.dump.image import OFFSETS_PASS
    from ratchet.tpu.dump.scheduled import LAST_PASS

    passes = (overflow.ALLOCATIONS_PASS, LAST_PASS, OFFSETS_PASS) if lists else (OFFSETS_PASS,)
    return environment.start(WORKER, workdir, chip, extra_passes=passes, profiles=profiles, warm=warm)


def identify(artefact: Artefact, child: Child, limits: Limits = LIMITS) -> tuple[str, TokenTable] | None:
    """Digest of what ``child`` would compile, without its author's names and places, and the table that has them.

    None for a program that cannot be compiled: why is what compiling it says.
    """
    from ratchet.tpu.dump.files import tokens_in  # imports numpy

    folder = child.request()
    (folder / PROGRAM).write_bytes(artefact.program)
    (folder / "request.json").write_text(json.dumps({"identify": True}))
    if child.ask(folder, limits).how != "answered":
        return None
    try:
        record = records.read(read_file(folder / RECORD, RECORD_BYTES), _KINDS, _no_record)
        return (record["code_sha256"], tokens_in(folder)) if "code_sha256" in record else None
    except (OSError, ValueError, Refusal):
        return None


def compile_artefact(
    artefact: Artefact,
    chip: Chip,
    folder: Path,
    child: Child,
    limits: Limits = LIMITS,
    *,
    lister: Callable[[], Child] | None = None,
    profiler: Callable[[], Child] | None = None,
) -> Program:
    """Compile for ``chip``, or as many as the artefact's mesh has; texts and schedule dumps land in ``folder``.

    What does not fit in VMEM is compiled again by ``lister()``, if it is given, where ``child`` does not list buffers.
    A large program for one chip is compiled by ``profiler()``, and what is around its kernels by ``lister()``, if both
    are given: the same texts, sooner. Where they do not fit together ``child`` compiles it as any other.

    Raises:
      Refusal: ``CONTRACT`` for a mesh that is not the whole slice, ``PROBLEM_CHANGED`` for a program that takes or
        gives other arrays than declared, or has them elsewhere, ``VMEM_OVERFLOW``, ``HBM_OVERFLOW``,
        ``UNALIGNED_BLOCK``, ``UNSUPPORTED_PRIMITIVE``, ``COMPILE_FAILED``, ``COMPILER_CRASHED``, ``COMPILE_TIMEOUT``,
        ``INFRASTRUCTURE``, or what :func:`ratchet.tpu.compiler.tokens.tokenise` refuses.
    """
    _check_mesh(artefact.mesh, chip)
    try:
        if lister and profiler and is_large(artefact):
            program = _compiled_apart(artefact, chip, folder, (profiler(), lister()), limits)
            if program is not None:
                return program
            remove(folder)
        return _compiled(artefact, chip, folder, child, limits)
    except Refusal as refusal:
        if refusal.status is not Status.VMEM_OVERFLOW or lister is None:
            raise
    remove(folder)
    return _compiled(artefact, chip, folder, lister(), limits)


def is_large(artefact: Artefact) -> bool:
    """Whether it is compiled sooner by a child that ``profiles``. Not on several chips, which need other dumps, too."""
    return len(artefact.program) >= LARGE_BYTES and artefact.mesh.chips == 1


def _compiled(artefact: Artefact, chip: Chip, folder: Path, child: Child, limits: Limits) -> Program:
    ending = _asked(artefact, chip, folder, child, limits)
    if ending.how != "answered":
        raise died(ending, limits)
    return program_in(folder, chip, seconds=ending.seconds)


def _compiled_apart(
    artefact: Artefact, chip: Chip, folder: Path, children: tuple[Child, Child], limits: Limits
) -> Program | None:
    """The program as the first child makes it, with what the second makes around empty kernels.

    None where the two do not fit together, and where the first dies: whether that is the program's fault is for a
    compiler to say that has no other flags.
    """
    from ratchet.tpu.dump.around import add_around

    profiler, lister = children
    hollow = folder.with_name(f"{folder.name}-hollow")
    try:
        with ThreadPoolExecutor(1) as beside:
            around = beside.submit(_asked, artefact, chip, hollow, lister, limits, hollow=True)
            ending = _asked(artefact, chip, folder, profiler, limits)
        if ending.how == "timeout":
            raise died(ending, limits)
        if ending.how != "answered":
            return None
        is_whole = around.result().how == "answered" and add_around(folder / "schedule", hollow / "schedule")
        program = program_in(folder, chip, seconds=ending.seconds)
        return program if is_whole else None
    finally:
        remove(hollow)


def _asked(
    artefact: Artefact, chip: Chip, folder: Path, child: Child, limits: Limits, *, hollow: bool = False
) -> Ending:
    """Ask ``child`` to compile; what it leaves lands in ``folder``. ``hollow``: with kernels that do nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    work = child.request()
    (work / PROGRAM).write_bytes(artefact.program)
    request = {
        "chip": chip.name,
        "axes": artefact.mesh.axes,
        "splits": artefact.mesh.inputs,
        "inputs": [(spec.shape, spec.dtype) for spec in artefact.inputs],
        "outputs": [(spec.shape, spec.dtype) for spec in artefact.outputs],
        "output_splits": artefact.output_splits,
        "hollow": hollow,
    }
    (work / "request.json").write_text(json.dumps(request))
    ending = child.ask(work, limits)
    take(work, folder)
    return ending


def program_in(folder: Path, chip: Chip, *, seconds: float) -> Program:
    """What a compiler process left in ``folder``, read; ``seconds`` is how long it took.

    Raises:
      Refusal: what the compiler says, as :func:`compile_artefact`; ``COMPILER_CRASHED`` where it left no usable record,
        ``SCHEDULE_UNKNOWN`` or ``INFRASTRUCTURE`` where its files do not read.
    """
    from ratchet.tpu.dump import copies, memory  # these import numpy
    from ratchet.tpu.dump.files import LOWERED, load_hlo, tokens_in

    try:
        data = read_file(folder / RECORD, RECORD_BYTES)
    except (OSError, ValueError) as error:
        raise _no_record(str(error)) from None
    record = records.read(data, _KINDS, _no_record)
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
        record = records.read(read_file(folder / RECORD, RECORD_BYTES), _KINDS, _no_record)
    except (OSError, ValueError):
        return ""
    return str(record.get("error", ""))


def _no_record(why: str) -> Refusal:
    return Refusal(Status.COMPILER_CRASHED, f"the TPU compiler's process left no usable record: {why:.200}")


def step(
    artefact: Artefact,
    chip: Chip,
    folder: Path,
    child: Child,
    *,
    lister: Callable[[], Child],
    profiler: Callable[[], Child],
) -> tuple[Program, str]:
    """A step of a verdict: ``compile_artefact``, with a summary."""
    program = compile_artefact(artefact, chip, folder, child, lister=lister, profiler=profiler)
    many = f"the {artefact.mesh.chips} chips of a {chip.topology} slice" if artefact.mesh.chips > 1 else chip.name
    return program, f"{program.compiler} for {many}"


def _check_mesh(mesh: Mesh, chip: Chip) -> None:
    for name, _ in mesh.axes:  # they are the only names of the author's that the compiler reads
        if not (name.isascii() and name.isidentifier() and len(name) <= 40):
            raise Refusal(
                Status.CONTRACT, f"get_tiling_meta() names an axis of the mesh {name!r:.80}; wanted a word of letters"
            )
    if mesh.chips > 1 and mesh.chips != chip.ici.chips:
        raise Refusal(
            Status.CONTRACT,
            f"get_tiling_meta() declares a mesh of {mesh.chips} chips; a slice of {chip.name} has "
            f"{chip.ici.chips}: use all of them or one",
        )


def copy_trap(program: Program) -> tuple[tuple[Copy, ...], str]:
    """A step of a verdict: the copies that the compiled program makes, in words. Copies cost, they do not fail."""
    if not program.copies:
        return (), "none"
    injected = sum(c.injected for c in program.copies)
    total = sum(c.size_bytes for c in program.copies)
    asked = len(program.copies) - injected
    return program.copies, f"{injected} injected by the compiler, {asked} asked for, {total / (1 << 20):.1f} MiB in all"
