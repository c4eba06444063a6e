"""VMEM, spills and HBM of a compiled program, by the compiler's own account.

The compiler reports VMEM buffer by buffer (``*vmem_report.html``), and counts units in use bundle by bundle
(:data:`~ratchet.tpu.dump.files.UTILISATION_PASS`).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.files import OUTLINE_PASS, UTILISATION_PASS, named, text_of
from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.values import Footprint, Program, Vmem, VmemAllocation, VmemBuffer, VmemUse
from ratchet.values.status import Refusal, Status

_REPORT = "*vmem_report.html"
_SPILLS = "register spills"
"""Name of the buffer that holds spilled registers."""
_UNTAGGED = "without a name"
"""Tag of an allocation that the compiler names none for; libtpu 0.0.52 has such."""
_OUTSIDE = "<top-inlining-caller>"
_VMEM = "1"
"""VMEM's number among the memory spaces of a ``backend_config``."""

_WINDOW = re.compile(r"(input|output) window allocation for operator (?:input|output) (\d{1,9})\b")
_OPERAND = re.compile(r"operand span for operand (\d{1,9})\b")
_PREFETCHED = re.compile(r"prefetched SMEM operand (\d{1,9})\b")
_LISTED = re.compile(
    r"shape = '([^'{]*)[^'\n]*', space=(\w+), size = (0x[0-9a-f]{1,16})(?:, offset = \w+)?"
    r"(?:, (?!fixed_abs)\w+)*, tag = '([^'\n]*)'"
)
_UNCOUNTED = "internal scratch"
"""Tag of what the compiler lists and does not count."""
_HEADER = 4 << 20
"""Of a dump in which allocations are listed, what is read."""
_BLOCK = re.compile(r"The window shape is (\S+), while the full shape is (\S+)\.(?:\s|$)")
_SHAPE = re.compile(r"([a-z]+\d*\w*)\[((?:\d{1,12}(?:,\d{1,12})*)?)\]")
_LEVELS = re.compile(r"has (\d{1,3}) buffering levels")
_WINDOW_USES = {"input": VmemUse.INPUT, "output": VmemUse.OUTPUT}

_COUNT = re.compile(r"[0-9]{1,18}")
_COUNTS = re.compile(r"[0-9 \t\n]*")
_TOO_LONG = re.compile(r"[0-9]{19}")

Raw = tuple[str, str, int]
"""Tag, shape and bytes of an allocation, as the compiler writes them."""


class Block(NamedTuple):
    """Of a VMEM report: what one operation has in one place."""

    op: str
    size_bytes: int
    kind: str
    allocations: list[Raw]


def footprint(hlo: HloModule, schedule: Path, chip: Chip, *, hbm_bytes: int) -> Footprint:
    """What a program occupies.

    Args:
        hlo: the optimised module.
        schedule: the folder of the compiler's dumps.
        chip: what it was compiled for.
        hbm_bytes: what the compiler says of HBM.

    Raises:
        Refusal: ``INFRASTRUCTURE`` if what the compiler wrote is not as known.
    """
    used, limit = 0, chip.default_scoped_vmem_bytes
    for op in (hlo.ops[name] for name in hlo.kernels()):
        sizes, limits = _vmem(op, "used_scoped_memory_configs"), _vmem(op, "scoped_memory_configs")
        if sizes is None:
            raise Refusal(
                Status.INFRASTRUCTURE,
                f"the compiled kernel {op.name} has no used_scoped_memory_configs; wanted its VMEM. "
                "Is this a compiler that the judge does not know?",
            )
        if sum(sizes) >= used:
            used, limit = sum(sizes), limits[0] if limits else chip.default_scoped_vmem_bytes
    spilled = [
        spills(text_of(path, Status.INFRASTRUCTURE), file=path.name)
        for path in schedule.glob(f"*{UTILISATION_PASS}.txt")
    ]
    return Footprint(
        vmem_bytes=used,
        vmem_limit_bytes=limit,
        vmem_buffers=max(map(heaviest_buffers, _reports(schedule)), key=total_bytes, default=()),
        hbm_bytes=hbm_bytes,
        hbm_limit_bytes=chip.hbm_bytes,
        spill_stores=sum(stores for stores, _ in spilled),
        spill_loads=sum(loads for _, loads in spilled),
    )


def step(program: Program) -> tuple[Footprint, str]:
    """A step of a verdict: the footprint, in words."""
    used = program.footprint
    mib = 1 << 20
    return used, (
        f"VMEM {used.vmem_bytes / mib:.2f} of {used.vmem_limit_bytes / mib:.0f} MiB, "
        f"HBM {used.hbm_bytes / mib:.0f} MiB, {used.spill_stores} spill stores"
    )


def vmem_by_op(hlo: HloModule, schedule: Path, chip: Chip) -> tuple[Vmem, ...]:
    """VMEM of every kernel and every operation that the compiler reports on: kernels first, then by what they need.

    Kernels of the SparseCores have memories of their own, of which nothing is reported: they are left out.

    Args:
        hlo: the optimised module.
        schedule: the folder of the compiler's dumps.
        chip: what it was compiled for.

    Raises:
        Refusal: ``INFRASTRUCTURE`` for a report of another form.
    """
    own = [name for name, kernel in hlo.launches.items() if not kernel.is_of_sparse_cores]
    reported: dict[str, tuple[VmemAllocation, ...]] = dict.fromkeys(own, ())
    for report in _reports(schedule):
        reported |= allocations_by_op(report)
    every = [_of_op(name, allocations, hlo, chip) for name, allocations in reported.items()]
    return tuple(sorted(every, key=lambda one: (not one.is_kernel, -one.used_bytes)))


def _of_op(name: str, allocations: tuple[VmemAllocation, ...], hlo: HloModule, chip: Chip) -> Vmem:
    op = hlo.ops.get(name)
    used = _vmem(op, "used_scoped_memory_configs") if op else None
    limits = _vmem(op, "scoped_memory_configs") if op else None
    if (rest := sum(used or ()) - sum(one.size_bytes for one in allocations)) > 0:
        unnamed = VmemAllocation(use=VmemUse.UNNAMED, size_bytes=rest)
        allocations = tuple(sorted((*allocations, unnamed), key=lambda one: -one.size_bytes))
    return Vmem(
        op=name,
        is_kernel=name in hlo.launches,
        allocations=allocations,
        used_bytes=sum(used) if used else sum(one.size_bytes for one in allocations),
        limit_bytes=limits[0] if limits else chip.default_scoped_vmem_bytes,
        chip_bytes=chip.vmem_bytes,
    )


def smem_by_kernel(hlo: HloModule, schedule: Path) -> tuple[Vmem, ...]:
    """SMEM of every kernel that has any of its own: windows, prefetched operands, scratch. Most needed first."""
    found = []
    for path in sorted(schedule.glob(f"*{OUTLINE_PASS}.txt")):
        dump = named(path)
        if dump is None or dump.label != OUTLINE_PASS or dump.name not in hlo.launches:
            continue
        with path.open(encoding="utf-8", errors="replace") as file:
            allocations = allocations_of(listed(file.read(_HEADER), "smem"))
        used = sum(one.size_bytes for one in allocations)
        if used:
            found.append(
                Vmem(
                    op=dump.name, is_kernel=True, allocations=allocations, used_bytes=used, limit_bytes=0,
                    chip_bytes=0, memory="SMEM",
                )
            )  # fmt: skip
    return tuple(sorted(found, key=lambda one: -one.used_bytes))


def listed(header: str, space: str) -> list[Raw]:
    """The allocations in one memory that a dump lists of a kernel, without what the runtime has at fixed addresses."""
    every = _LISTED.findall(header)
    return [(tag, shape, int(amount, 0)) for shape, where, amount, tag in every if where == space and tag != _UNCOUNTED]


def _vmem(op: HloOp, key: str) -> Sequence[int] | None:
    """Bytes of VMEM under ``key`` of a kernel's ``backend_config``; None if there is nothing of the kind."""
    try:
        entries = op.config.get(key)
        if entries is None:
            return None
        return [int(entry["size"]) for entry in entries if entry["memory_space"] == _VMEM]
    except (ValueError, KeyError, TypeError):
        return None


_ALIASES = frozenset({"parameter", "bitcast", "tuple", "get-tuple-element", "while", "conditional", "call"})
"""Opcodes whose results are other operations'."""


def kept_bytes(hlo: HloModule, schedule: Path, chip: Chip) -> int:
    """VMEM in which XLA keeps whole arrays. Raises Refusal ``INFRASTRUCTURE`` for a report of another form.

    The report may count what is reserved for the scoped memory of kernels as well (tpu7x). Where the arrays that HLO
    has in VMEM need less than it says, all together, that is taken off.
    """
    reports = _reports(schedule)
    kept = max((sum(one.size_bytes for one in report if one.kind == "HLO_TEMPORARY") for report in reports), default=0)
    made = [op for op in hlo.ops.values() if op.opcode not in _ALIASES and not op.opcode.endswith("-start")]
    arrays = sum(one.padded_bytes for op in made for one in op.types if one.space == int(_VMEM))
    own = kept - chip.reserved_vmem_bytes
    return kept if kept <= arrays else own if 0 <= own <= arrays else arrays


# --- the report of VMEM ---


def _reports(schedule: Path) -> list[list[Block]]:
    paths = sorted(schedule.glob(_REPORT))
    return [read_report(text_of(path, Status.INFRASTRUCTURE), file=path.name) for path in paths]


def read_report(text: str, *, file: str) -> list[Block]:
    """The blocks of all operations of a report.

    Raises:
        Refusal: INFRASTRUCTURE for a text of another form.
    """
    try:
        data: dict[str, Any] = json.JSONDecoder().raw_decode(text[text.index("{", text.index("DATA")) :])[0]
        return [
            Block(
                op,
                int(block.get("block_size", 0)),
                str(block.get("block_type", "")),
                [(a.get("tag", _UNTAGGED), a.get("shape", ""), int(a["size"])) for a in block["allocations"]],
            )
            for op, breakdown in (data["hlo_breakdowns"] or {}).items()  # null where nothing is in VMEM
            for block in breakdown["blocks"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(Status.INFRASTRUCTURE, f"{file} does not read as a VMEM report: {error!r}.") from None


def _by_op(report: Iterable[Block]) -> dict[str, list[Raw]]:
    found: dict[str, list[Raw]] = {}
    for block in report:
        found.setdefault(block.op, []).extend(block.allocations)
    return found


def heaviest_buffers(report: Iterable[Block]) -> tuple[VmemBuffer, ...]:
    """The buffers of the kernel that needs most VMEM, double buffering included; largest first."""
    found = _by_op(report)
    outside = buffers_of(found.pop(_OUTSIDE, ()))
    inside = [buffers_of(allocations) for allocations in found.values()]
    return max((buffers for buffers in inside if buffers), key=total_bytes, default=outside)


def allocations_by_op(report: Iterable[Block]) -> dict[str, tuple[VmemAllocation, ...]]:
    """The allocations of every operation, by its HLO name; largest first."""
    return {op: allocations_of(raw) for op, raw in _by_op(report).items() if op != _OUTSIDE}


def total_bytes(buffers: Iterable[VmemBuffer]) -> int:
    """Bytes of all together."""
    return sum(buffer.size_bytes for buffer in buffers)


def buffers_of(allocations: Iterable[Raw]) -> tuple[VmemBuffer, ...]:
    """Buffers by name, largest first; the bytes of a window hold all its buffering levels."""
    total: dict[str, int] = defaultdict(int)
    for tag, shape, size in allocations:
        name = tag.partition(". The window shape")[0].replace(" allocation for operator", "").replace(" operand", "")
        window = re.search(r"The window shape is (\S+),", tag)
        levels = re.search(r"has (\d+) buffering levels", tag)
        label = f"{name} {window[1] if window else shape}" + (f" x{levels[1]}" if levels else "")
        total[_SPILLS if tag == "SPILL" else label.strip()] += size
    buffers = (VmemBuffer(name=name, size_bytes=size) for name, size in total.items())
    return tuple(sorted(buffers, key=lambda buffer: (-buffer.size_bytes, buffer.name)))


def allocations_of(raw: Iterable[Raw]) -> tuple[VmemAllocation, ...]:
    """Allocations by what they are for, equal ones added up, largest first."""
    total: dict[VmemAllocation, int] = defaultdict(int)
    for tag, shape, size in raw:
        total[_allocation(tag, shape)] += size
    every = (replace(allocation, size_bytes=size) for allocation, size in total.items())
    return tuple(sorted(every, key=lambda one: (-one.size_bytes, one.use.value, one.number or 0, one.block)))


def _allocation(tag: str, shape: str) -> VmemAllocation:
    """What an allocation is for, without its bytes."""
    window = _WINDOW.match(tag)
    if window is not None:
        block, levels = _BLOCK.search(tag), _LEVELS.search(tag)
        dtype, sides = _shape(block[1] if block else shape)
        return VmemAllocation(
            use=_WINDOW_USES[window[1]],
            number=int(window[2]),
            dtype=dtype,
            shape=sides,
            whole=_shape(block[2])[1] if block else (),
            levels=max(1, int(levels[1])) if levels else 1,
            size_bytes=0,
        )
    if tag == "SPILL":
        return VmemAllocation(use=VmemUse.SPILLS, size_bytes=0)
    dtype, sides = _shape(shape)
    for pattern, use in ((_OPERAND, VmemUse.OPERAND), (_PREFETCHED, VmemUse.PREFETCHED)):
        if operand := pattern.match(tag):
            return VmemAllocation(use=use, number=int(operand[1]), dtype=dtype, shape=sides, size_bytes=0)
    use = VmemUse.SCRATCH if tag.startswith(("scratch operand", "scoped memory")) else VmemUse.COMPILER
    return VmemAllocation(use=use, dtype=dtype, shape=sides, size_bytes=0)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Dtype and sides of ``bf16[256,128]{1,0}``; nothing of what is no shape."""
    match = _SHAPE.match(text)
    return (match[1], tuple(map(int, match[2].split(",") if match[2] else ()))) if match else ("", ())


# --- units in use, bundle by bundle ---


def parse_utilisation(text: str, *, file: str) -> Mapping[str, np.ndarray]:
    """Counts per bundle (empty ones left out) by column: ``MXU``, ``VALU``, ``FILL``, ``SPILL``…; int64.

    Raises:
        Refusal: INFRASTRUCTURE for a text of another form.
    """
    head, marker, body = text.partition("== UTILIZATION:")
    columns, _ = _columns(head)
    if not columns or not marker:
        raise Refusal(Status.INFRASTRUCTURE, f"{file} has no VLOAD:FILL column; is this an unknown compiler?")
    rows = sum(not line.isspace() for line in body.splitlines() if line)
    is_counts = _COUNTS.fullmatch(body) and not _TOO_LONG.search(body)
    flat = np.fromstring(body, np.int64, sep=" ") if is_counts and rows else np.zeros(0, np.int64)
    if not is_counts or flat.size != rows * len(columns):
        raise Refusal(Status.INFRASTRUCTURE, f"{file} has rows that do not fit its VLOAD:FILL header; is it cut off?")
    counts = flat.reshape(-1, len(columns))
    return {column: counts[:, number] for number, column in enumerate(columns)}


def capacities(text: str, *, file: str) -> Mapping[str, int]:
    """Slots per bundle of the chip by column, as the compiler heads the dump: ``VSTORE`` is 1 on v5e and 2 on v6e.

    Raises:
        Refusal: INFRASTRUCTURE for a text of another form.
    """
    columns, counts = _columns(text.partition("== UTILIZATION:")[0])
    if not columns or len(counts) != len(columns) or not all(map(_COUNT.fullmatch, counts)):
        raise Refusal(Status.INFRASTRUCTURE, f"{file} has no line of capacities; is this an unknown compiler?")
    return {column: max(1, int(count)) for column, count in zip(columns, counts, strict=True)}


def _columns(head: str) -> tuple[list[str], list[str]]:
    """Names of a dump's columns, and the words of the line below them: the slots of each."""
    for line, below in pairwise([*head.splitlines(), ""]):
        if "VLOAD:FILL" in line:
            return [column.strip().rpartition(":")[2] for column in line.split(",")], below.split()
    return [], []


def spills(text: str, *, file: str) -> tuple[int, int]:
    """Static counts of spill stores and loads. Raises like :func:`parse_utilisation`."""
    counts = parse_utilisation(text, file=file)
    if "SPILL" not in counts or "FILL" not in counts:
        raise Refusal(Status.INFRASTRUCTURE, f"{file} does not count spills; is this an unknown compiler?")
    return int(counts["SPILL"].sum()), int(counts["FILL"].sum())
