"""One row of the ledger in full, as a person reads it: numbers with the digits that mean something."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

from ratchet.view.gains import Entry
from ratchet.view.text import clean, clean_lines
from ratchet.view.words import fixed, number, size, time_change, times

_LABEL = 12


def show(entry: Entry, *, width: int | None = None, blame: str = "") -> str:
    """Everything that a row says, labelled; what is empty is left out.

    Args:
      entry: the row, and what it gained.
      width: columns of the terminal, at which lines are wrapped; None leaves them whole.
      blame: path of its table of cycles by line, where there is one.
    """
    row = entry.row
    lines = [clean(f"experiment {row.id} · {row.status} · {row.decision}")]
    for label, text in (*_pairs(entry), ("blame", blame)):
        indent = f"  {label:<{_LABEL}} "
        for value in clean_lines(text):
            lines += _wrapped(value, width, indent)
            indent = " " * len(indent)
    return "\n".join(lines)


def _wrapped(value: str, width: int | None, indent: str) -> list[str]:
    if width is None:
        return [indent + value]
    under = " " * min(len(indent), max(2, width // 4))
    return textwrap.wrap(value, max(24, width), initial_indent=indent, subsequent_indent=under, break_on_hyphens=False)


def _pairs(entry: Entry) -> Iterator[tuple[str, str]]:
    row = entry.row
    yield "kernel", row.kernel
    yield "note", row.note
    yield "decision", ": ".join(filter(None, (row.decision, row.reason)))
    yield "latency", _latency(entry)
    yield "against", _against(entry)
    yield "roofline", _roofline(entry)
    yield "score", _value(row.score)
    yield "VMEM", _number(row.vmem_bytes, lambda value: size(int(value)))
    yield "spills", _number(row.spills, lambda value: f"{int(value):,}")
    yield "modelled", _number(row.modelled_ms, lambda value: f"{fixed(value, 4)} ms, beside the measured latency")
    yield "timing", _timing(entry)
    yield "judged by", " · ".join(filter(None, (row.evaluator, _device(entry), row.compiler)))
    yield "judged at", " ".join(filter(None, (row.time, _number(row.seconds, lambda value: f"in {value:.0f} s"))))
    yield from (
        ("seal", row.seal), ("problem", row.problem), ("commit", row.commit), ("parent", row.parent),
        ("blob", row.kernel_blob), ("evidence", row.evidence), ("previous", row.previous),
    )  # fmt: skip


def _number(text: str, said: Callable[[float], str]) -> str:
    """``said`` of the number in a cell; the cell itself where it is none, for a ledger is text that anyone can edit."""
    value = number(text)
    return text if value is None else said(value)


def _value(text: str) -> str:
    return _number(text, lambda value: fixed(value, 4))


def _latency(entry: Entry) -> str:
    row = entry.row
    if not row.median_ms:
        return ""
    said = f"{_value(row.median_ms)} ms {entry.kind}".rstrip()
    if row.band_low_ms and row.band_high_ms:
        said += f", 9 times in 10 between {_value(row.band_low_ms)} and {_value(row.band_high_ms)} ms on a device"
    if row.wait_ms:
        said += f"; {_value(row.wait_ms)} ms of it waiting"
    return said


def _against(entry: Entry) -> str:
    if entry.faster is None:
        return ""
    whom = entry.before.id if entry.before else "the incumbent"
    low, high = entry.row.speedup_low, entry.row.speedup_high
    interval = f" (95 %: {_value(low)} to {_value(high)})" if low and high else ""
    return f"{times(entry.faster)} as fast as {whom}{interval}: time {time_change(entry.faster)}"


def _roofline(entry: Entry) -> str:
    row = entry.row
    parts = (
        _number(row.util_pct, lambda value: f"{value:.1f} % reached"),
        row.regime,
        _number(row.tflops, lambda value: f"{fixed(value, 4)} TFLOP/s"),
        _number(row.bw_util_pct, lambda value: f"compulsory bytes use {value:.1f} % of HBM"),
    )
    return ", ".join(filter(None, parts))


def _timing(entry: Entry) -> str:
    row = entry.row
    return ", ".join(
        filter(None, (row.samples and f"{row.samples} calls", row.launches and f"{row.launches} launches"))
    )


def _device(entry: Entry) -> str:
    if not entry.row.evaluator:
        return entry.row.chip
    how = "modelled: no device was timed" if entry.kind == "modelled" else "measured on the device"
    return " · ".join(filter(None, (entry.row.chip, how)))
