"""Messages of the compiler about too little memory, in one line. Pure, except for the dumps of a failed compile."""

from __future__ import annotations

import re
from pathlib import Path

from ratchet.dump.vmem_report import buffers_of, total_bytes

ALLOCATIONS_PASS = "pre-finalize-registers-and-allocations"
"""Pass whose dump lists the buffers of a kernel that does not fit."""
ALLOCATIONS_SUFFIX = f"{ALLOCATIONS_PASS}.txt"
HEADER_BYTES = 64 << 10
"""Of that dump, what is read."""

_ALLOCATION = re.compile(r"shape = '([^'{]*)[^']*', space=vmem, size = 0x([0-9a-f]{1,16}),.*?tag = '([^']*)'")
_AMOUNT = r"(\d{1,15}(?:\.\d{1,15})?[KMGT]?)"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_amount(text: str) -> int:
    """``16.12M`` -> bytes, in the compiler's binary units."""
    unit = text[-1] if text[-1] in _UNITS else ""
    return int(float(text[: len(text) - len(unit)]) * _UNITS[unit])


def overflow_message(error: str, schedule: Path | None = None) -> str:
    """VMEM overflow in one line: used, limit, and the buffer that weighs most."""
    text = " ".join(error.split())
    scoped = re.search(rf"Scoped allocation with size {_AMOUNT} and limit {_AMOUNT}", text)
    whole = re.search(rf"Used {_AMOUNT} of {_AMOUNT} vmem", text)
    one = re.search(r"Allocation \(size=(\d{1,18})\) would exceed memory \(size=(\d{1,18})\)", text)
    if one is not None:  # a single buffer that no limit could make fit
        named = buffers_of((tag, shape, int(size, 16)) for shape, size, tag in _ALLOCATION.findall(text))
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
    buffers = buffers_of((tag, shape, int(size, 16)) for shape, size, tag in _ALLOCATION.findall(header))
    rest = used_bytes - total_bytes(buffers)
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
