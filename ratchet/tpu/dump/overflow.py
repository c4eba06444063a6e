"""Messages of the compiler about too little memory, in one line. Pure, except for the dumps of a failed compile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ratchet.tpu.chips import Chip
from ratchet.tpu.dump import vmem_report
from ratchet.values import Vmem, VmemAllocation, VmemBuffer, VmemUse

ALLOCATIONS_PASS = "pre-finalize-registers-and-allocations"
"""Pass whose dump lists the buffers of a kernel that does not fit."""
ALLOCATIONS_SUFFIX = f"{ALLOCATIONS_PASS}.txt"
HEADER_BYTES = 64 << 10
"""Of that dump, what is read."""

_ALLOCATION = re.compile(r"shape = '([^'{]*)[^']*', space=vmem, size = 0x([0-9a-f]{1,16}),.*?tag = '([^']*)'")
_AMOUNT = r"(\d{1,15}(?:\.\d{1,15})?[KMGT]?)"
_SCOPED = re.compile(rf"Scoped allocation with size {_AMOUNT} and limit {_AMOUNT}")
_WHOLE = re.compile(rf"Used {_AMOUNT} of {_AMOUNT} vmem")
_ONE = re.compile(r"Allocation \(size=(\d{1,18})\) would exceed memory \(size=(\d{1,18})\)")
_REFUSED = re.compile(r"while allocating on stack for %(\S+) = ")
_DUMP = re.compile(rf"\d+-(?P<name>.+)-\d+-{ALLOCATIONS_PASS}\.txt$")
_ROUNDING = 1000
_NAMED = 3
_UNCOUNTED = "internal scratch"
"""Tag of what the compiler lists and does not count."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_amount(text: str) -> int:
    """``16.12M`` -> bytes, in the compiler's binary units."""
    unit = text[-1] if text[-1] in _UNITS else ""
    return int(float(text[: len(text) - len(unit)]) * _UNITS[unit])


def overflow_message(error: str, schedule: Path | None = None, chip: Chip | None = None) -> str:
    """VMEM overflow in one line: used, limit, the buffers that weigh most, and whether ``chip`` has room for more."""
    text = " ".join(error.split())
    one = _ONE.search(text)
    if one is not None:  # a single buffer that no limit could make fit
        named = vmem_report.buffers_of(_listed(text))
        which = f"; {named[0].name} weighs most ({int(one[1]) / (1 << 20):.1f} MiB)" if named else ""
        needs = f"the kernel needs {int(one[1]) / (1 << 20):.2f}MiB of VMEM for one buffer, the limit is "
        return f"{needs}{int(one[2]) / (1 << 20):.2f}MiB{which}; use a smaller one"
    whole = _WHOLE.search(text)
    match = _SCOPED.search(text) or whole
    buffers = _buffers(schedule, text) if schedule else ()
    used_bytes, listed = parse_amount(match[1]) if match else 0, vmem_report.total_bytes(buffers)
    needs = match[1] if match and listed <= used_bytes * (1 + 1 / _ROUNDING) else f"{listed / (1 << 20):.2f}M"
    used = f"needs {needs}iB of VMEM, the limit is {match[2]}iB" if match else f"needs too much VMEM: {text[:300]}"
    used_bytes = max(used_bytes, listed)
    hint = "use smaller blocks"
    if not whole and (chip is None or used_bytes <= chip.vmem_bytes):
        has = f" (the chip has {chip.vmem_bytes >> 20} MiB)" if chip else ""
        hint += f", or raise vmem_limit_bytes in CompilerParams{has}"
    return f"the kernel {used}{_heaviest(buffers, used_bytes)}; {hint}"


def overflowing(error: str, schedule: Path, chip: Chip) -> Vmem | None:
    """VMEM of the kernel that the compiler refused, allocation by allocation; None for an error of another kind.

    What the dump lists is less than what the compiler counts: the rest is spills and temporaries, booked as
    ``SPILLS``. ``error`` is the compiler's text, with the judge's tokens in it.
    """
    text = " ".join(error.split())
    one, match = _ONE.search(text), _SCOPED.search(text) or _WHOLE.search(text)
    if one is not None:
        used, limit = int(one[1]), int(one[2])
    elif match is not None:
        used, limit = parse_amount(match[1]), parse_amount(match[2])
    else:
        return None
    name, header = ("", text) if one is not None else _header(schedule, text)
    allocations = vmem_report.allocations_of(_listed(header))
    listed = sum(allocation.size_bytes for allocation in allocations)
    used, rest = max(used, listed), used - listed  # the compiler stops counting at the first that does not fit
    if rest > used // _ROUNDING:  # amounts in a message have two decimals
        allocations = (*allocations, VmemAllocation(use=VmemUse.SPILLS, size_bytes=rest))
    return Vmem(
        op=name,
        is_kernel=True,
        allocations=tuple(sorted(allocations, key=lambda allocation: -allocation.size_bytes)),
        used_bytes=used,
        limit_bytes=limit,
        chip_bytes=chip.vmem_bytes,
    )


def _heaviest(buffers: Sequence[VmemBuffer], used_bytes: int) -> str:
    """The largest buffers of a kernel that did not fit, or ``""``."""
    rest = used_bytes - vmem_report.total_bytes(buffers)
    if buffers and rest > buffers[0].size_bytes:
        return f"; most of it, {rest / (1 << 20):.1f} MiB, is register spills and compiler temporaries"
    if not buffers:
        return ""
    first, *others = buffers[:_NAMED]
    then = "".join(f", {one.name} ({one.size_bytes / (1 << 20):.1f} MiB)" for one in others)
    return f"; {first.name} weighs most ({first.size_bytes / (1 << 20):.1f} MiB){', then' if then else ''}{then[1:]}"


def _buffers(schedule: Path, text: str) -> tuple[VmemBuffer, ...]:
    return vmem_report.buffers_of(_listed(_header(schedule, text)[1]))


def _listed(header: str) -> list[vmem_report.Raw]:
    every = [(tag, shape, int(size, 16)) for shape, size, tag in _ALLOCATION.findall(header)]
    return [one for one in every if one[0] != _UNCOUNTED]


def _header(schedule: Path, text: str) -> tuple[str, str]:
    """Name of the kernel that did not fit and the header of its last dump; empty where there is none."""
    dumps = {
        match["name"]: path
        for path in sorted(schedule.glob(f"*{ALLOCATIONS_SUFFIX}"))
        if (match := _DUMP.match(path.name))
    }
    for name in ("TLP", "<late-initialization>", "<late-finalization>"):
        dumps.pop(name, None)
    if not dumps:
        return "", ""
    refused = _REFUSED.search(text)
    name = refused[1] if refused and refused[1] in dumps else max(dumps, key=lambda name: dumps[name].name)
    with dumps[name].open(encoding="utf-8", errors="replace") as file:
        return name, file.read(HEADER_BYTES)


def hbm_message(error: str) -> str:
    """HBM overflow in one line: used and available."""
    text = " ".join(error.split())
    match = re.search(rf"\({_AMOUNT}\) exceeds available HBM \({_AMOUNT}\)", text) or re.search(
        rf"Used {_AMOUNT} of {_AMOUNT} hbm", text
    )
    if match is None:
        return f"the program needs too much HBM: {text[:300]}"
    return f"the program needs {match[1]}iB of HBM, a program may use {match[2]}iB; use smaller arrays or fewer copies"
