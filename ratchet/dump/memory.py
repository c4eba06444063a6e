"""VMEM, spills and HBM of a compiled program, from the compiler's own texts. Pure parsing."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ratchet.chips import Chip
from ratchet.values import Footprint, Program, VmemBuffer
from ratchet.values.status import Refusal, Status

_INSTRUCTIONS = re.compile(r"\n(?= *(?:ROOT )?%\S+ = )")
_USED = re.compile(r'"used_scoped_memory_configs":\[(.*?)\]')
_LIMIT = re.compile(r'"scoped_memory_configs":\[(.*?)\]')
_VMEM_SIZE = re.compile(r'"memory_space":"1"[^}]*?"size":"(\d+)"')
_ALLOCATION = re.compile(r"shape = '([^'{]*)[^']*', space=vmem, size = 0x([0-9a-f]+),.*?tag = '([^']*)'")
_AMOUNT = r"([\d.]+[KMGT]?)"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
HEADER_BYTES = 64 << 10
UTILIZATION_SUFFIX = "final_hlo-static-per-bundle-utilization.txt"
REPORT_SUFFIX = "vmem_report.html"
ALLOCATIONS_PASS = "pre-finalize-registers-and-allocations"
ALLOCATIONS_SUFFIX = f"{ALLOCATIONS_PASS}.txt"
OUTSIDE = "<top-inlining-caller>"


def footprint(folder: Path, chip: Chip, *, hbm_bytes: int) -> Footprint:
    """What the program in ``folder`` occupies.

    Raises:
      Refusal: ``INFRASTRUCTURE`` if the compiler's texts are not as known.
    """
    hlo = (folder / "optimized.hlo").read_text()
    used, limit = 0, chip.default_scoped_vmem_bytes
    for line in _INSTRUCTIONS.split(hlo):  # not by lines: a kernel's metadata has several
        if 'custom_call_target="tpu_custom_call"' not in line:
            continue
        match = _USED.search(line)
        if match is None:
            raise Refusal(
                Status.INFRASTRUCTURE,
                "optimized.hlo has a kernel without used_scoped_memory_configs; wanted its VMEM. "
                "Is this a compiler that the judge does not know?",
            )
        size = sum(int(n) for n in _VMEM_SIZE.findall(match[1]))
        raised = _LIMIT.search(line.replace("used_scoped_memory_configs", "used"))
        if size >= used:
            limits = [int(n) for n in _VMEM_SIZE.findall(raised[1])] if raised else []
            used, limit = size, limits[0] if limits else chip.default_scoped_vmem_bytes
    stores, loads = _spills(folder / "schedule")
    return Footprint(
        vmem_bytes=used,
        vmem_limit_bytes=limit,
        vmem_buffers=_buffers(folder / "schedule"),
        hbm_bytes=hbm_bytes,
        hbm_limit_bytes=chip.hbm_bytes,
        spill_stores=stores,
        spill_loads=loads,
    )


def step(program: Program) -> tuple[Footprint, str]:
    """A step of a verdict: the footprint, in words."""
    found = program.footprint
    mib = 1 << 20
    return found, (
        f"VMEM {found.vmem_bytes / mib:.2f} of {found.vmem_limit_bytes / mib:.0f} MiB, "
        f"HBM {found.hbm_bytes / mib:.0f} MiB, {found.spill_stores} spill stores"
    )


def _buffers(schedule: Path) -> tuple[VmemBuffer, ...]:
    """The heaviest kernel's buffers, double buffering included, from the compiler's report; largest first."""
    heaviest: list[VmemBuffer] = []
    for report in sorted(schedule.glob(f"*{REPORT_SUFFIX}")):
        text = report.read_text()
        start = text.find("{", text.find("DATA"))
        data: dict[str, Any] = json.JSONDecoder().raw_decode(text[start:])[0]
        for op, breakdown in (data["hlo_breakdowns"] or {}).items():  # null where nothing is in VMEM
            allocations = [a for block in breakdown["blocks"] for a in block["allocations"]]
            buffers = _named((a["tag"], a.get("shape", ""), int(a["size"])) for a in allocations)
            if op != OUTSIDE and sum(b.size_bytes for b in buffers) > sum(b.size_bytes for b in heaviest):
                heaviest = buffers
            elif op == OUTSIDE and not heaviest:
                heaviest = buffers
    return tuple(heaviest)


def _named(allocations: Iterable[tuple[str, str, int]]) -> list[VmemBuffer]:
    """Buffers by name from (tag, shape, bytes); the bytes of a window hold all its buffering levels."""
    total: dict[str, int] = defaultdict(int)
    for tag, shape, size in allocations:
        name = tag.partition(". The window shape")[0].replace(" allocation for operator", "").replace(" operand", "")
        window = re.search(r"The window shape is (\S+),", tag)
        levels = re.search(r"has (\d+) buffering levels", tag)
        label = f"{name} {window[1] if window else shape}" + (f" x{levels[1]}" if levels else "")
        total["register spills" if tag == "SPILL" else label.strip()] += size
    return sorted((VmemBuffer(name=n, size_bytes=s) for n, s in total.items()), key=lambda b: (-b.size_bytes, b.name))


def _spills(schedule: Path) -> tuple[int, int]:
    """Static counts of spill stores and loads over all dumped programs."""
    stores = loads = 0
    for path in schedule.glob(f"*{UTILIZATION_SUFFIX}"):
        lines = path.read_text().splitlines()
        header = next((line for line in lines if "VLOAD:FILL" in line), None)
        if header is None:
            raise Refusal(Status.INFRASTRUCTURE, f"{path.name} has no VLOAD:FILL column; is this an unknown compiler?")
        columns = [name.strip() for name in header.split(",")]
        fill, spill = columns.index("VLOAD:FILL"), columns.index("VSTORE:SPILL")
        body = lines[lines.index("== UTILIZATION:") + 1 :] if "== UTILIZATION:" in lines else []
        for line in body:
            fields = line.split()
            if len(fields) == len(columns):
                loads += int(fields[fill])
                stores += int(fields[spill])
    return stores, loads


def parse_amount(text: str) -> int:
    """``16.12M`` -> bytes, in the compiler's binary units."""
    unit = text[-1] if text[-1] in _UNITS else ""
    return int(float(text[: len(text) - len(unit)]) * _UNITS[unit])


def overflow_message(error: str, schedule: Path | None = None) -> str:
    """VMEM overflow in one line: used, limit, and the buffer that weighs most."""
    text = " ".join(error.split())
    scoped = re.search(rf"Scoped allocation with size {_AMOUNT} and limit {_AMOUNT}", text)
    whole = re.search(rf"Used {_AMOUNT} of {_AMOUNT} vmem", text)
    one = re.search(r"Allocation \(size=(\d+)\) would exceed memory \(size=(\d+)\)", text)
    if one is not None:  # a single buffer that no limit could make fit
        named = _named((tag, shape, int(size, 16)) for shape, size, tag in _ALLOCATION.findall(text))
        which = f"; {named[0].name} weighs most ({int(one[1]) / (1 << 20):.1f} MiB)" if named else ""
        needs = f"the kernel needs {int(one[1]) / (1 << 20):.2f}MiB of VMEM for one buffer, the limit is "
        return f"{needs}{int(one[2]) / (1 << 20):.2f}MiB{which}; use a smaller one"
    match = scoped or whole
    used = f"needs {match[1]}iB of VMEM, the limit is {match[2]}iB" if match else f"needs too much VMEM: {text[:300]}"
    hint = "use smaller blocks" + (
        "" if whole else ", or raise vmem_limit_bytes in CompilerParams (the chip has 128 MiB)"
    )
    heaviest = heaviest_buffer(schedule, parse_amount(match[1]) if match else 0) if schedule else ""
    return f"the kernel {used}{heaviest}; {hint}"


def heaviest_buffer(schedule: Path, used_bytes: int) -> str:
    """The largest buffer of a kernel that did not fit, from the header of the compiler's last dump, or ``""``."""
    dumps = sorted(
        p for p in schedule.glob(f"*{ALLOCATIONS_SUFFIX}") if "-<late-" not in p.name and "-TLP-" not in p.name
    )
    if not dumps:
        return ""
    with dumps[-1].open() as file:
        header = file.read(HEADER_BYTES)
    buffers = _named((tag, shape, int(size, 16)) for shape, size, tag in _ALLOCATION.findall(header))
    rest = used_bytes - sum(b.size_bytes for b in buffers)
    if buffers and rest > buffers[0].size_bytes:
        return f"; most of it, {rest / (1 << 20):.1f} MiB, is register spills and compiler temporaries"
    return f"; {buffers[0].name} weighs most ({buffers[0].size_bytes / (1 << 20):.1f} MiB)" if buffers else ""


def hbm_message(error: str) -> str:
    """HBM overflow in one line: used and available."""
    text = " ".join(error.split())
    match = re.search(rf"\({_AMOUNT}\) exceeds available HBM \({_AMOUNT}\)", text) or re.search(
        rf"Used {_AMOUNT} of {_AMOUNT} hbm", text
    )
    if match is None:
        return f"the program needs too much HBM: {text[:300]}"
    return f"the program needs {match[1]}iB of HBM, a program may use {match[2]}iB; use smaller arrays or fewer copies"
