"""What a number has to survive before it counts, and the author's claims beside what was found. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ratchet.exam.problem.floor import touched_bytes, written_bytes
from ratchet.exam.problem.problem import Problem
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.dump.hlo import HloModule
from ratchet.values import Artefact, Claim, Footprint, Program, Timeline
from ratchet.values.status import Refusal, Status

TOLERANCE = 0.05
"""Relative difference from which a claim disagrees."""

NO_KERNEL = "the compiled program holds no Pallas kernel: kernel_fn is plain XLA, or its kernel's result is not used"
"""What is said of a program without a live kernel."""
BARRIER_BYTES = 8192
"""Traffic of a chip that is no program's: what the chips of a slice exchange at the launch barrier, at most."""


def program(compiled: Program) -> tuple[tuple[str, ...], str]:
    """A step of a verdict: refuse a program without a kernel of its own, one that talks to the host, or one whose
    kernels get their operands in another order of bytes than they are executed with.

    Returns the names of its live kernels.

    Raises:
      Refusal: ``NOT_A_KERNEL``, ``HOST_CALLBACK`` or ``CANNOT_VERIFY``.
    """
    if not compiled.kernels:
        raise Refusal(Status.NOT_A_KERNEL, NO_KERNEL)
    hlo = load_hlo(compiled.dump_dir)
    no_host_calls(hlo)
    row_major(hlo)
    count = len(compiled.kernels)
    return compiled.kernels, f"{count} live kernel{'s' if count > 1 else ''}: {', '.join(compiled.kernels)}"


def no_host_calls(hlo: HloModule) -> None:
    """Refuse a program that exchanges data with the host or runs code there.

    Raises:
      Refusal: ``HOST_CALLBACK``.
    """
    host = next((op for op in hlo.ops.values() if op.calls_host), None)
    if host is not None:
        what = host.target or host.opcode
        raise Refusal(Status.HOST_CALLBACK, f"the compiled program calls the host ({what:.80}); wanted a kernel alone")


def row_major(hlo: HloModule) -> None:
    """Refuse a compiled program in which an operand or a result of a kernel is not row-major.

    Raises:
      Refusal: ``CANNOT_VERIFY``.
    """
    for kernel in (op for op in hlo.ops.values() if op.is_kernel):
        places = [(f"operand {n}", array) for n, op in enumerate(hlo.operands(kernel)) for array in op.types]
        places += [(f"result {n}", array) for n, array in enumerate(kernel.types)]
        for place, array in places:
            if not array.is_row_major:
                order = ",".join(map(str, array.minor_to_major))
                message = f"{place} of the compiled kernel {kernel.name} is {array}{{{order}}}, wanted row-major"
                raise Refusal(Status.CANNOT_VERIFY, f"{message}: transpose it outside of the kernel")


def work(problem: Problem, timeline: Timeline) -> str:
    """Refuse a run that writes fewer bytes than it has to. Returns the traffic in words.

    Raises:
      Refusal: ``INVALID``.
    """
    outputs = written_bytes(problem)
    chips = timeline.chips or (timeline,)
    read, written = sum(chip.hbm_read_bytes for chip in chips), sum(chip.hbm_write_bytes for chip in chips)
    if written < outputs:
        raise Refusal(
            Status.INVALID,
            f"the modelled run writes {written} bytes to HBM, wanted at least the {outputs} of its outputs; "
            "a kernel cannot be done before its output is written",
        )
    ratio = (read + written) / max(1, touched_bytes(problem))
    return f"HBM traffic is {ratio:.2f} times the compulsory bytes"


def step(
    artefact: Artefact, problem: Problem, footprint: Footprint, timeline: Timeline
) -> tuple[tuple[Claim, ...], str]:
    """A step of a verdict: ``work`` and ``claims``, in words."""
    traffic = work(problem, timeline)
    found = claims(artefact, footprint, timeline)
    disagreeing = [claim.what for claim in found if not claim.agrees]
    said = "all claims agree" if found else "no claims"
    if disagreeing:
        said = f"claims that disagree: {', '.join(disagreeing)}"
    return found, f"{traffic}; {said}"


def claims(artefact: Artefact, footprint: Footprint, timeline: Timeline) -> tuple[Claim, ...]:
    """``get_tiling_meta()`` beside the compiler and the schedule. Claims are compared, never used.

    Of a program on a slice, the claims are those of one chip: the slowest.
    """
    meta = artefact.tiling_meta
    found: list[Claim] = []
    other = BARRIER_BYTES if timeline.chips else 0
    if meta.get("grid"):
        found.append(_claim("grid steps", math.prod(cast(Sequence[int], meta["grid"])), timeline.grid_steps))
    if "buffers" in meta:
        buffers = cast(Sequence[Mapping[str, Any]], meta["buffers"])
        vmem = sum(b["size_bytes"] * (2 if b["double_buffered"] else 1) for b in buffers)
        spills = sum(b.size_bytes for b in footprint.vmem_buffers if b.name == "register spills")
        found.append(_claim("VMEM buffers, bytes", vmem, footprint.vmem_bytes - spills))
    if "inputs" in meta:
        found.append(_claim("HBM reads, bytes", _traffic(meta["inputs"]), timeline.hbm_read_bytes, other))
    if "outputs" in meta:
        found.append(_claim("HBM writes, bytes", _traffic(meta["outputs"]), timeline.hbm_write_bytes, other))
    return tuple(found)


def _traffic(entries: object) -> int:
    return sum(e["size_bytes"] * e["re_reads"] for e in cast(Sequence[Mapping[str, int]], entries))


def _claim(what: str, claimed: int, found: int, other: int = 0) -> Claim:
    """``other``: how much of what was found may be nobody's claim."""
    agrees = abs(claimed - found) <= max(other, TOLERANCE * max(abs(found), 1))
    return Claim(what=what, claimed=f"{claimed:,}", found=f"{found:,}", agrees=agrees)
