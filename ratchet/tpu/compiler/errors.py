"""What the compiler says when it fails, sorted into statuses, with the author's names and places in the messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ratchet.process.sandbox.child import Ending, Limits
from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.files import ALLOCATIONS_PASS, TOP, named
from ratchet.tpu.dump.memory import allocations_of, buffers_of, listed, total_bytes
from ratchet.values import Vmem, VmemAllocation, VmemBuffer, VmemUse
from ratchet.values.status import KILLED, Ended, Refusal, Status
from ratchet.values.tokens import NO_TOKENS, SOURCE_FILE, TokenTable

HEADER_BYTES = 64 << 10
"""Of a dump of :data:`ALLOCATIONS_PASS`, what is read."""

_AMOUNT = r"(\d{1,15}(?:\.\d{1,15})?[KMGT]?)"
_SCOPED = re.compile(rf"Scoped allocation with size {_AMOUNT} and limit {_AMOUNT}")
_WHOLE = re.compile(rf"Used {_AMOUNT} of {_AMOUNT} vmem")
_ONE = re.compile(r"Allocation \(size=(\d{1,18})\) would exceed memory \(size=(\d{1,18})\)")
_SMEM = re.compile(r"Allocation \(size=(\d{1,18})\) would exceed memory \(size=(\d{1,18})\) :: .{1,200}?space=smem,")
_SMEM_WHOLE = re.compile(rf"memory space smem\. Used {_AMOUNT} of {_AMOUNT} smem")
_TAG = re.compile(r"space=smem, .{0,80}?tag = '([^']*)'")
_REFUSED = re.compile(r"while allocating on stack for %(\S+) = ")
_AROUND = (TOP, "<late-initialization>", "<late-finalization>")
"""Units that are no kernels."""
_INVOLVED = re.compile(r"(.+?)\s+at location: ([^\n]+)\s+The MLIR operation involved:\s+([^\n]+)", re.DOTALL)
_TOKEN = re.compile(rf'"{SOURCE_FILE}":(\d+)')
_MORE = re.compile(r"\s*See https://\S+ for more details\.")
_RAISED = "JaxRuntimeError: INTERNAL: "
_WHAT, _OPERATION = 500, 400
"""Characters of each, at most."""
_ROUNDING = 1000
_NAMED = 3
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
    if one := _SMEM.search(text) or _SMEM_WHOLE.search(text):
        return Refusal(Status.SMEM_OVERFLOW, _smem_message(text, parse_amount(one[1]), parse_amount(one[2]), schedule))
    if "CompileTimeScopedVmemOom" in text or re.search(r"memory space vmem|exceed memory .*space=vmem", text):
        return Refusal(Status.VMEM_OVERFLOW, _vmem_message(text, schedule, chip))
    if "memory space hbm" in text or "on HBM" in text or "HBM capacity" in text:
        return Refusal(Status.HBM_OVERFLOW, _hbm_message(text))
    message = _of_operation(error, tokens) or _short(tokens.explain(_short(text)))
    if "UnprovenMemoryAccessAlignment" in text or "last two dimensions" in text:
        return Refusal(Status.UNALIGNED_BLOCK, message)
    if "Unimplemented primitive" in text:
        return Refusal(Status.UNSUPPORTED_PRIMITIVE, message)
    return Refusal(Status.COMPILE_FAILED, message)


def _of_operation(error: str, tokens: TokenTable) -> str:
    """Three lines: what Mosaic refuses, where that is in the author's file, the operation with its shapes in MLIR.

    ``""`` for an error that names no operation. An operation without a place has that of the one before it.
    """
    match = _INVOLVED.search(error)
    if match is None:
        return ""
    what, location, operation = (" ".join(part.split()) for part in match.groups())
    what = tokens.explain(_MORE.sub("", what).removeprefix(_RAISED))
    return f"{what[:_WHAT]}\n{_place(location, tokens)}\nin {tokens.explain(operation)[:_OPERATION]}"


def _place(location: str, tokens: TokenTable) -> str:
    token = _TOKEN.search(location)
    if token is None:
        return f"at {tokens.explain(location)[:_WHAT]}"
    number = int(token[1])
    if place := tokens.nearest(number):
        return "at {}:{}:{}".format(*place)
    before = (place for one in range(number - 1, -1, -1) if (place := tokens.source(one)))
    place = next(before, None)
    return "after {}:{}:{}, the last operation before it with a place".format(*place) if place else "at no known place"


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


def _smem_message(text: str, used: int, limit: int, schedule: Path | None) -> str:
    """SMEM overflow in one line: used, limit, and what weighs most or, of one allocation, for which operand."""
    tag = _TAG.search(text)
    what = f" for {tag[1].partition('. ')[0].replace('prefetched SMEM', 'the prefetched')}" if tag else ""
    buffers = buffers_of(listed(_header(schedule, text)[1], "smem")) if schedule and not tag else ()
    each = ", ".join(f"{one.name} ({one.size_bytes / 1024:.0f} KiB)" for one in buffers[:_NAMED])
    return (
        f"the kernel needs {used / 1024:.0f} KiB of SMEM{what}, the chip has {limit / 1024:.0f} KiB"
        + (f": {each}" if each else "")
        + "; prefetch only what a step needs, or leave the table in HBM and copy parts of it"
    )


def _vmem_message(text: str, schedule: Path | None, chip: Chip | None) -> str:
    """VMEM overflow in one line: used, limit, the buffers that weigh most, and whether ``chip`` has room for more."""
    one = _ONE.search(text)
    if one is not None:  # a single buffer that no limit could make fit
        named = buffers_of(listed(text, "vmem"))
        which = f"; {named[0].name} weighs most ({int(one[1]) / (1 << 20):.1f} MiB)" if named else ""
        needs = f"the kernel needs {int(one[1]) / (1 << 20):.2f}MiB of VMEM for one buffer, the limit is "
        return f"{needs}{int(one[2]) / (1 << 20):.2f}MiB{which}; use a smaller one"
    whole = _WHOLE.search(text)
    match = _SCOPED.search(text) or whole
    buffers = buffers_of(listed(_header(schedule, text)[1], "vmem")) if schedule else ()
    used_bytes, in_list = parse_amount(match[1]) if match else 0, total_bytes(buffers)
    needs = match[1] if match and in_list <= used_bytes * (1 + 1 / _ROUNDING) else f"{in_list / (1 << 20):.2f}M"
    used = f"needs {needs}iB of VMEM, the limit is {match[2]}iB" if match else f"needs too much VMEM: {text[:300]}"
    used_bytes = max(used_bytes, in_list)
    hint = "use smaller blocks"
    if not whole and (chip is None or used_bytes <= chip.vmem_bytes):
        has = f" (the chip has {chip.vmem_bytes >> 20} MiB)" if chip else ""
        hint += f", or raise vmem_limit_bytes in CompilerParams{has}"
    return f"the kernel {used}{_heaviest(buffers, used_bytes)}; {hint}"


def overflowing(error: str, schedule: Path, chip: Chip) -> Vmem | None:
    """VMEM or SMEM of the kernel that the compiler refused, by allocation; None for an error of another kind.

    What the dump lists is less than what the compiler counts: the rest is spills and temporaries, booked as
    ``SPILLS``. ``error`` is the compiler's text, with the judge's tokens in it.
    """
    text = " ".join(error.split())
    one, match = _ONE.search(text), _SCOPED.search(text) or _WHOLE.search(text)
    space = "smem" if (scalar := _SMEM.search(text) or _SMEM_WHOLE.search(text)) else "vmem"
    if scalar is not None:
        one, used, limit = None, parse_amount(scalar[1]), parse_amount(scalar[2])
    elif one is not None:
        used, limit = int(one[1]), int(one[2])
    elif match is not None:
        used, limit = parse_amount(match[1]), parse_amount(match[2])
    else:
        return None
    name, header = ("", text) if one is not None else _header(schedule, text)
    allocations = allocations_of(listed(header, space) or listed(text, space))
    in_list = sum(allocation.size_bytes for allocation in allocations)
    used, rest = max(used, in_list), used - in_list  # the compiler stops counting at the first that does not fit
    if space == "vmem" and rest > used // _ROUNDING:  # amounts in a message have two decimals
        allocations = (*allocations, VmemAllocation(use=VmemUse.SPILLS, size_bytes=rest))
    return Vmem(
        op=name,
        is_kernel=True,
        allocations=tuple(sorted(allocations, key=lambda allocation: -allocation.size_bytes)),
        used_bytes=used,
        limit_bytes=limit,
        chip_bytes=chip.vmem_bytes if space == "vmem" else 0,
        memory=space.upper(),
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
