"""What the compiler says when it fails, sorted into statuses, with the author's names and places in the messages."""

from __future__ import annotations

import re
from pathlib import Path

from ratchet.process.sandbox.child import Ending, Limits
from ratchet.tpu.chips import Chip
from ratchet.tpu.dump import overflow
from ratchet.values.status import KILLED, Ended, Refusal, Status
from ratchet.values.tokens import NO_TOKENS, TokenTable

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
    if "CompileTimeScopedVmemOom" in text or re.search(r"memory space vmem|exceed memory .*space=vmem", text):
        return Refusal(Status.VMEM_OVERFLOW, overflow.overflow_message(error, schedule, chip))
    if "memory space hbm" in text or "on HBM" in text or "HBM capacity" in text:
        return Refusal(Status.HBM_OVERFLOW, overflow.hbm_message(error))
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
