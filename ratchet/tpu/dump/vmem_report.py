"""The compiler's report of a kernel's VMEM, buffer by buffer: ``*vmem_report.html``. Pure."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ratchet.values import VmemAllocation, VmemBuffer, VmemUse
from ratchet.values.status import Refusal, Status

SUFFIX = "vmem_report.html"
SPILLS = "register spills"
"""Name of the buffer that holds spilled registers."""
_UNTAGGED = "without a name"
"""Tag of an allocation that the compiler names none for; libtpu 0.0.52 has such."""
_OUTSIDE = "<top-inlining-caller>"

_WINDOW = re.compile(r"(input|output) window allocation for operator (?:input|output) (\d{1,9})\b")
_OPERAND = re.compile(r"operand span for operand (\d{1,9})\b")
_BLOCK = re.compile(r"The window shape is (\S+), while the full shape is (\S+)\.(?:\s|$)")
_SHAPE = re.compile(r"([a-z]+\d*\w*)\[((?:\d{1,12}(?:,\d{1,12})*)?)\]")
_LEVELS = re.compile(r"has (\d{1,3}) buffering levels")
_WINDOW_USES = {"input": VmemUse.INPUT, "output": VmemUse.OUTPUT}

Raw = tuple[str, str, int]
"""Tag, shape and bytes of an allocation, as the compiler writes them."""


def heaviest_buffers(text: str, *, file: str) -> tuple[VmemBuffer, ...]:
    """The buffers of the kernel that needs most VMEM, double buffering included; largest first.

    Raises:
        Refusal: INFRASTRUCTURE for a report of another form.
    """
    breakdowns = _breakdowns(text, file)
    outside = buffers_of(breakdowns.pop(_OUTSIDE, ()))
    inside = [buffers_of(allocations) for allocations in breakdowns.values()]
    return max((report for report in inside if report), key=total_bytes, default=outside)


def allocations_by_op(text: str, *, file: str) -> dict[str, tuple[VmemAllocation, ...]]:
    """The allocations of every operation in the report, by its HLO name; largest first.

    Raises:
        Refusal: INFRASTRUCTURE for a report of another form.
    """
    breakdowns = _breakdowns(text, file)
    return {op: allocations_of(raw) for op, raw in breakdowns.items() if op != _OUTSIDE}


def kept_bytes(text: str, *, file: str) -> int:
    """VMEM in which XLA keeps whole arrays between operations.

    Raises:
        Refusal: INFRASTRUCTURE for a report of another form.
    """
    return sum(size for _, size, kind, _ in _blocks(text, file) if kind == "HLO_TEMPORARY")


def _breakdowns(text: str, file: str) -> dict[str, list[Raw]]:
    breakdowns: dict[str, list[Raw]] = {}
    for op, _, _, allocations in _blocks(text, file):
        breakdowns.setdefault(op, []).extend(allocations)
    return breakdowns


def _blocks(text: str, file: str) -> list[tuple[str, int, str, list[Raw]]]:
    """Operation, bytes, kind and allocations of every block."""
    try:
        data: dict[str, Any] = json.JSONDecoder().raw_decode(text[text.index("{", text.index("DATA")) :])[0]
        return [
            (
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


def total_bytes(buffers: Iterable[VmemBuffer]) -> int:
    """Bytes of all together."""
    return sum(buffer.size_bytes for buffer in buffers)


def allocations_of(raw: Iterable[Raw]) -> tuple[VmemAllocation, ...]:
    """Allocations from (tag, shape, bytes), equal ones added up, largest first."""
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
    operand = _OPERAND.match(tag)
    if operand is not None:
        return VmemAllocation(use=VmemUse.OPERAND, number=int(operand[1]), dtype=dtype, shape=sides, size_bytes=0)
    use = VmemUse.SCRATCH if tag.startswith(("scratch operand", "scoped memory")) else VmemUse.COMPILER
    return VmemAllocation(use=use, dtype=dtype, shape=sides, size_bytes=0)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Dtype and sides of ``bf16[256,128]{1,0}``; nothing of what is no shape."""
    match = _SHAPE.match(text)
    return (match[1], tuple(map(int, match[2].split(",") if match[2] else ()))) if match else ("", ())


def buffers_of(allocations: Iterable[Raw]) -> tuple[VmemBuffer, ...]:
    """Buffers by name from (tag, shape, bytes), largest first; the bytes of a window hold all its buffering levels."""
    total: dict[str, int] = defaultdict(int)
    for tag, shape, size in allocations:
        name = tag.partition(". The window shape")[0].replace(" allocation for operator", "").replace(" operand", "")
        window = re.search(r"The window shape is (\S+),", tag)
        levels = re.search(r"has (\d+) buffering levels", tag)
        label = f"{name} {window[1] if window else shape}" + (f" x{levels[1]}" if levels else "")
        total[SPILLS if tag == "SPILL" else label.strip()] += size
    buffers = (VmemBuffer(name=name, size_bytes=size) for name, size in total.items())
    return tuple(sorted(buffers, key=lambda buffer: (-buffer.size_bytes, buffer.name)))
