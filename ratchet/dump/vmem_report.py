"""The compiler's report of a kernel's VMEM, buffer by buffer: ``*vmem_report.html``. Pure."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ratchet.values import VmemBuffer
from ratchet.values.status import Refusal, Status

SUFFIX = "vmem_report.html"
SPILLS = "register spills"
"""Name of the buffer that holds spilled registers."""
_OUTSIDE = "<top-inlining-caller>"


def heaviest_buffers(text: str, *, file: str) -> tuple[VmemBuffer, ...]:
    """The buffers of the kernel that needs most VMEM, double buffering included; largest first.

    Raises:
        Refusal: INFRASTRUCTURE for a report of another form.
    """
    try:
        data: dict[str, Any] = json.JSONDecoder().raw_decode(text[text.index("{", text.index("DATA")) :])[0]
        breakdowns = {
            op: [
                (a["tag"], a.get("shape", ""), int(a["size"]))
                for block in breakdown["blocks"]
                for a in block["allocations"]
            ]
            for op, breakdown in (data["hlo_breakdowns"] or {}).items()  # null where nothing is in VMEM
        }
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(Status.INFRASTRUCTURE, f"{file} does not read as a VMEM report: {error!r}.") from None
    outside = buffers_of(breakdowns.pop(_OUTSIDE, ()))
    inside = [buffers_of(allocations) for allocations in breakdowns.values()]
    return max((report for report in inside if report), key=total_bytes, default=outside)


def total_bytes(buffers: Iterable[VmemBuffer]) -> int:
    """Bytes of all together."""
    return sum(buffer.size_bytes for buffer in buffers)


def buffers_of(allocations: Iterable[tuple[str, str, int]]) -> tuple[VmemBuffer, ...]:
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
