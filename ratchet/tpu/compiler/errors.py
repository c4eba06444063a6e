"""What the compiler says when it fails, sorted into statuses, with the author's names and places in the messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ratchet.process.sandbox.child import Ending, Limits
from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.files import ALLOCATIONS_PASS, TOP, named
from ratchet.tpu.dump.memory import Raw, allocations_of, buffers_of, total_bytes
from ratchet.values import Vmem, VmemAllocation, VmemBuffer, VmemUse
from ratchet.values.status import KILLED, Ended, Refusal, Status
from ratchet.values.tokens import NO_TOKENS, TokenTable

HEADER_BYTES = 64 << 10
"""Of a dump of :data:`ALLOCATIONS_PASS`, what is read."""

_ALLOCATION = re.compile(r"shape = '([^'{]*)[^']*', space=vmem, size = 0x([0-9a-f]{1,16}),.*?tag = '([^']*)'")
_AMOUNT = r"(\d{1,15}(?:\.\d{1,15})?[KMGT]?)"
_SCOPED = re.compile(rf"Scoped allocation with size {_AMOUNT} and limit {_AMOUNT}")
_WHOLE = re.compile(rf"Used {_AMOUNT} of {_AMOUNT} vmem")
_ONE = re.compile(r"Allocation \(size=(\d{1,18})\) would exceed memory \(size=(\d{1,18})\)")
_SMEM = re.compile(r"Allocation \(size=(\d{1,18})\) would exceed memory \(size=(\d{1,18})\) :: .{1,200}?space=smem,")
_TAG = re.compile(r"space=smem, .{0,80}?tag = '([^']*)'")
_REFUSED = re.compile(r"while allocating on stack for %(\S+) = ")
_AROUND = (TOP, "<late-initialization>", "<late-finalization>")
"""Units that are no kernels."""
_ROUNDING = 1000
_NAMED = 3
_UNCOUNTED = "internal scratch"
"""Tag of what the compiler lists and does not count."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_FAREWELL = re.compile(r"#|@|PC:|\*\*\*|.* RAW: ")
"""Lines of a dying process that say nothing: stack frames and the signal handler's own words."""


def classify(
    error: str, schedule: Path | None = None, tokens: TokenTable = NO_TOKENS, chip: Chip | None = None
) -> Refusal:
    """Sort the text of a compiler error into a status, with used and wanted amounts where the compiler gives them.

    Args:
        error: what was raised, as text. It decides the status as it is, so no name of the author's can.
        schedule: folder with the dumps of the failed compile; they name the largest buffer.
        tokens: what the tokens in ``error`` stand for, for the message.
        chip: what was compiled for: it says whether there is VMEM above the limit.
    """
    text = " ".join(error.split())
    if "lockfile" in text or "libtpu_lockfile" in text:
        return Refusal(Status.INFRASTRUCTURE, f"libtpu could not be opened, try again: {_short(text)}")
    if one := _SMEM.search(text):
        return Refusal(Status.SMEM_OVERFLOW, _smem_message(text, *one.groups()))
    if "CompileTimeScopedVmemOom" in text or re.search(r"memory space vmem|exceed memory .*space=vmem", text):
        return Refusal(Status.VMEM_OVERFLOW, _vmem_message(text, schedule, chip))
    if "memory space hbm" in text or "on HBM" in text or "HBM capacity" in text:
        return Refusal(Status.HBM_OVERFLOW, _hbm_message(text))
    message = _short(tokens.explain(_short(text)))
    if "UnprovenMemoryAccessAlignment" in text or "last two dimensions" in text:
        return Refusal(Status.UNALIGNED_BLOCK, message)
    if "Unimplemented primitive" in text:
        return Refusal(Status.UNSUPPORTED_PRIMITIVE, message)
    return Refusal(Status.COMPILE_FAILED, message)


def _short(text: str) -> str:
    """Without the operation's text in MLIR, which can be very long: its place says more."""
    for end in (" Please report a bug at", " The MLIR operation involved:"):
        text = text.partition(end)[0]
    return " ".join(text.split())[:700]


def died(ending: Ending, limits: Limits) -> Refusal:
    """The refusal for a compiler process that gave no answer."""
    if ending.how == "timeout":
        return Ended(Status.COMPILE_TIMEOUT, f"the TPU compiler did not finish in {limits.seconds:.0f} s")
    if ending.how == "memory":
        return Ended(Status.COMPILER_CRASHED, f"the TPU compiler used more than {limits.memory_bytes >> 20} MiB")
    if ending.how == "disk":
        return Ended(Status.COMPILER_CRASHED, "the TPU compiler wrote more than it may")
    code = ending.returncode
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    lines = [line.strip() for line in ending.tail.splitlines() if line.strip()]
    lines = [line for line in lines if not _FAREWELL.match(line)]
    return (Ended if code in KILLED else Refusal)(
        Status.COMPILER_CRASHED,
        f"the TPU compiler died on this program ({how}); deeply nested control flow and absurd scratch sizes do that"
        + (f"; it last said: {lines[-1]:.200}" if lines else ""),
    )


def parse_amount(text: str) -> int:
    """``16.12M`` -> bytes, in the compiler's binary units."""
    unit = text[-1] if text[-1] in _UNITS else ""
    return int(float(text[: len(text) - len(unit)]) * _UNITS[unit])


def _smem_message(text: str, used: str, limit: str) -> str:
    """SMEM overflow in one line: used, limit, and for which operand."""
    tag = _TAG.search(text)
    what = f" for {tag[1].replace('prefetched SMEM', 'the prefetched')}" if tag else ""
    return (
        f"the kernel needs {int(used) / 1024:.0f} KiB of SMEM{what}, the chip has {int(limit) / 1024:.0f} KiB; "
        "prefetch only what a step needs, or leave the table in HBM and copy parts of it"
    )


def _vmem_message(text: str, schedule: Path | None, chip: Chip | None) -> str:
    """VMEM overflow in one line: used, limit, the buffers that weigh most, and whether ``chip`` has room for more."""
    one = _ONE.search(text)
    if one is not None:  # a single buffer that no limit could make fit
        named = buffers_of(_listed(text))
        which = f"; {named[0].name} weighs most ({int(one[1]) / (1 << 20):.1f} MiB)" if named else ""
        needs = f"the kernel needs {int(one[1]) / (1 << 20):.2f}MiB of VMEM for one buffer, the limit is "
        return f"{needs}{int(one[2]) / (1 << 20):.2f}MiB{which}; use a smaller one"
    whole = _WHOLE.search(text)
    match = _SCOPED.search(text) or whole
    buffers = buffers_of(_listed(_header(schedule, text)[1])) if schedule else ()
    used_bytes, listed = parse_amount(match[1]) if match else 0, total_bytes(buffers)
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
    allocations = allocations_of(_listed(header))
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
    rest = used_bytes - total_bytes(buffers)
    if buffers and rest > buffers[0].size_bytes:
        return f"; most of it, {rest / (1 << 20):.1f} MiB, is register spills and compiler temporaries"
    if not buffers:
        return ""
    first, *others = buffers[:_NAMED]
    then = "".join(f", {one.name} ({one.size_bytes / (1 << 20):.1f} MiB)" for one in others)
    return f"; {first.name} weighs most ({first.size_bytes / (1 << 20):.1f} MiB){', then' if then else ''}{then[1:]}"


def _listed(header: str) -> list[Raw]:
    every = [(tag, shape, int(size, 16)) for shape, size, tag in _ALLOCATION.findall(header)]
    return [one for one in every if one[0] != _UNCOUNTED]


def _header(schedule: Path, text: str) -> tuple[str, str]:
    """Name of the kernel that did not fit and the header of its last dump; empty where there is none."""
    dumps = {
        dump.name: path
        for path in sorted(schedule.glob("*.txt"))
        if (dump := named(path)) and dump.label == ALLOCATIONS_PASS and dump.name not in _AROUND
    }
    if not dumps:
        return "", ""
    refused = _REFUSED.search(text)
    name = refused[1] if refused and refused[1] in dumps else max(dumps, key=lambda name: dumps[name].name)
    with dumps[name].open(encoding="utf-8", errors="replace") as file:
        return name, file.read(HEADER_BYTES)


def _hbm_message(text: str) -> str:
    """HBM overflow in one line: used and available."""
    match = re.search(rf"\({_AMOUNT}\) exceeds available HBM \({_AMOUNT}\)", text) or re.search(
        rf"Used {_AMOUNT} of {_AMOUNT} hbm", text
    )
    if match is None:
        return f"the program needs too much HBM: {text[:300]}"
    return f"the program needs {match[1]}iB of HBM, a program may use {match[2]}iB; use smaller arrays or fewer copies"
