"""One row of the ledger in full, and where a repository's experiments are: what is kept, what is edited, what runs."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.loop.frozen import current
from ratchet.process.boot import home
from ratchet.search.progress import Searching
from ratchet.values import Row
from ratchet.values.status import Status
from ratchet.view.document import plain
from ratchet.view.ledger import Entry, by_evaluator, entries, entry_document
from ratchet.view.searching import headline
from ratchet.view.text import clean, clean_lines, columns, fixed, number, size, time_change, times, wrapped

_LABEL = 11
_NARROW = 72
_DISPENSABLE = ("roofline", "failed", "slower", "kept", "evaluator")
"""Columns that go, in this order, until the table fits."""


@dataclass(frozen=True, kw_only=True)
class State:
    """What git and the ledger say now."""

    branch: str
    commit: str
    edited: tuple[str, ...]
    """Kernel files of the ledger that are not as HEAD has them, and the one that is judged where none is named."""
    running: str
    """The message of the experiment that runs now; ``""`` where none does."""
    unfinished: str
    """The id of an experiment that was cut off; ``""`` where none was."""
    rows: tuple[Row, ...]
    candidate: str = ""
    """The kernel file that holds what a run or a search tries, not an edit of the user's; ``""`` where none does."""
    searching: tuple[Searching, ...] = ()
    """Searches under way."""


def status_text(state: State, *, width: int | None = None) -> str:
    """A line for each kernel, and what comes next."""
    lines: list[str] = []
    for label, text in _pairs(state):
        indent = f"{label:<{_LABEL}} "
        under = " " * (len(indent) if width is None or width >= _NARROW else 2)
        wide = 10**6 if width is None else max(24, width)
        lines += wrapped(clean(text), wide, indent, under)
    series = by_evaluator(entries(state.rows))
    heading = ["kernel", "evaluator", "latency", "roofline", "faster", "kept", "slower", "failed"]
    cells = [heading, *map(_cells, series.values())]
    table = [f"  {line}" for line in columns(cells)]
    for name in _DISPENSABLE:
        if width is not None and max(map(len, table)) > width >= _NARROW:
            place = cells[0].index(name)
            cells = [[*row[:place], *row[place + 1 :]] for row in cells]
            table = [f"  {line}" for line in columns(cells)]
    if series and (width is None or max(map(len, table)) <= width):
        lines += ["", *table]
    elif series:
        for of_one in series.values():
            kernel, evaluator, latency, roofline, faster, *counts = _cells(of_one)
            said = [
                kernel,
                evaluator,
                ", ".join(filter(None, (latency, roofline))),
                f"{faster} as fast" if faster else "",
            ]
            said.append(f"kept {counts[0]}, slower {counts[1]}, failed {counts[2]}")
            lines += ["", *(f"  {'  ' * (number > 0)}{text}" for number, text in enumerate(said) if text)]
    return "\n".join(lines)


def status_document(state: State) -> dict[str, Any]:
    """The same as JSON."""
    made = entries(state.rows)
    return {
        "branch": state.branch,
        "commit": state.commit,
        "edited": list(state.edited),
        "candidate": state.candidate or None,
        "running": state.running or None,
        "searching": plain(state.searching),
        "unfinished": state.unfinished or None,
        "problems": [
            {"problem": one.row.problem, "kernel": one.row.kernel, "frozen_by": one.row.id, "at": one.row.time}
            for one in current(state.rows)
        ],
        "experiments": sum(not one.repeats for one in made),
        "last": entry_document(made[-1]) if made else None,
        "series": [_series(of_one) for of_one in by_evaluator(made).values()],
    }


def _pairs(state: State) -> Iterator[tuple[str, str]]:
    yield "branch", f"{state.branch.removeprefix('refs/heads/')} at {state.commit[:9]}"
    yield from (("searching", headline(one)) for one in state.searching)
    if state.running:
        yield "running", f"an experiment: {state.running}"
    if state.unfinished:
        yield "cut off", f"experiment {state.unfinished}: the next run finishes it"
    if state.candidate:
        runs = bool(state.running or state.searching)
        whose = "it is not your edit, and HEAD's comes back" if runs else "the next run brings HEAD's back"
        yield "candidate", f"{state.candidate} holds what {'the' if runs else 'a'} run tries: {whose}"
    if state.edited:
        yield "edited", f"{', '.join(state.edited)}: `{_judges(state.edited[0])}` judges it"
    elif not state.candidate:
        yield "edited", "nothing: every kernel file is as HEAD has it"
    for one in current(state.rows):
        yield "problem", one.said.replace("problem ", "", 1)
    if state.rows:
        last = state.rows[-1]
        yield "last", f"{last.id} {last.kernel} {last.status} {last.decision}: {last.note}"
    else:
        yield "last", f'no experiment yet: `{home.PROGRAM} "baseline"` judges {_kernel(state)} as it is'


def _judges(kernel: str) -> str:
    """The command that judges an edit of a kernel file."""
    named = "" if kernel == home.KERNEL else f" --kernel {shlex.quote(kernel)}"
    return f'{home.PROGRAM}{named} "message"'


def _kernel(state: State) -> str:
    return state.edited[0] if state.edited else "the kernel"


def _incumbent(of_one: Sequence[Entry]) -> Entry | None:
    return next((one for one in reversed(of_one) if one.kept and one.latency_ms is not None), None)


def _together(of_one: Sequence[Entry]) -> float | None:
    """How many times as fast all kept experiments made the kernel; None where none was compared."""
    steps = [one.faster for one in of_one if one.row.decision == "kept" and one.faster is not None]
    return math.prod(steps) if steps else None


def _outcomes(of_one: Sequence[Entry]) -> tuple[int, int, int]:
    kept = sum(one.kept for one in of_one)
    slower = sum(not one.kept and one.latency_ms is not None for one in of_one)
    return kept, slower, len(of_one) - kept - slower


def _cells(of_one: Sequence[Entry]) -> list[str]:
    row, best = of_one[0].row, _incumbent(of_one)
    together, counts = _together(of_one), [str(count) for count in _outcomes(of_one)]
    latency = f"{fixed(best.latency_ms, 4)} ms {best.kind}" if best and best.latency_ms else "-"
    reached = number(best.row.util_pct) if best else None
    return [
        clean(row.kernel),
        clean(row.evaluator),
        latency,
        "" if reached is None else f"{reached:.1f} %",
        "" if together is None else f"{times(together)} ({time_change(together)})",
        *counts,
    ]


def _series(of_one: Sequence[Entry]) -> dict[str, Any]:
    best, (kept, slower, failed) = _incumbent(of_one), _outcomes(of_one)
    wrong = Counter(one.row.status for one in of_one if one.latency_ms is None and one.row.status != Status.PASS.name)
    return {
        "kernel": of_one[0].row.kernel,
        "evaluator": of_one[0].row.evaluator,
        "kind": of_one[0].kind,
        "kept": kept,
        "slower": slower,
        "failed": failed,
        "statuses": dict(sorted(wrong.items())),
        "times_faster": _together(of_one),
        "incumbent": entry_document(best) if best else None,
    }


# --- one row ---


def show(entry: Entry, *, width: int | None = None, blame: str = "") -> str:
    """Everything that a row says, labelled; what is empty is left out.

    Args:
      entry: the row, and what it gained.
      width: columns of the terminal, at which lines are wrapped; None leaves them whole.
      blame: path of its table of cycles by line, where there is one.
    """
    row = entry.row
    lines = [clean(f"experiment {row.id} · {row.status} · {row.decision}")]
    for label, text in (*_facts(entry), ("blame", blame)):
        indent = f"  {label:<12} "
        for value in clean_lines(text):
            lines += _wrapped(value, width, indent)
            indent = " " * len(indent)
    return "\n".join(lines)


def _wrapped(value: str, width: int | None, indent: str) -> list[str]:
    if width is None:
        return [indent + value]
    under = " " * min(len(indent), max(2, width // 4))
    return wrapped(value, max(24, width), indent, under)


def _facts(entry: Entry) -> Iterator[tuple[str, str]]:
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
