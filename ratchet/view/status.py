"""Where a repository's experiments are: what is kept, what is edited, what runs. As a person reads it, and as JSON."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.process.boot import home
from ratchet.values import Row
from ratchet.values.status import Status
from ratchet.view.columns import columns
from ratchet.view.gains import Entry, by_evaluator, entries, entry_document
from ratchet.view.text import clean
from ratchet.view.words import fixed, number, time_change, times

_LABEL = 11
_NARROW = 72


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


def status_text(state: State, *, width: int | None = None) -> str:
    """A line for each kernel, and what comes next."""
    lines: list[str] = []
    for label, text in _pairs(state):
        indent = f"{label:<{_LABEL}} "
        under = " " * (len(indent) if width is None or width >= _NARROW else 2)
        wide = 10**6 if width is None else max(24, width)
        lines += textwrap.wrap(
            clean(text), wide, initial_indent=indent, subsequent_indent=under, break_on_hyphens=False
        )
    series = by_evaluator(entries(state.rows))
    if series and (width is None or width >= _NARROW):
        heading = ["kernel", "evaluator", "latency", "roofline", "faster", "kept", "slower", "failed"]
        cells = [heading, *(_cells(of_one) for of_one in series.values())]
        lines += ["", *(f"  {line}" for line in columns(cells))]
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
        "running": state.running or None,
        "unfinished": state.unfinished or None,
        "experiments": sum(not one.repeats for one in made),
        "last": entry_document(made[-1]) if made else None,
        "series": [_series(of_one) for of_one in by_evaluator(made).values()],
    }


def _pairs(state: State) -> Iterator[tuple[str, str]]:
    yield "branch", f"{state.branch.removeprefix('refs/heads/')} at {state.commit[:9]}"
    if state.running:
        yield "running", f"an experiment: {state.running}"
    if state.unfinished:
        yield "cut off", f"experiment {state.unfinished}: the next run finishes it"
    if state.edited:
        yield "edited", f'{", ".join(state.edited)}: `{home.PROGRAM} "message"` judges it'
    else:
        yield "edited", "nothing: every kernel file is as HEAD has it"
    if state.rows:
        last = state.rows[-1]
        yield "last", f"{last.id} {last.kernel} {last.status} {last.decision}: {last.note}"
    else:
        yield "last", f'no experiment yet: `{home.PROGRAM} "baseline"` judges {_kernel(state)} as it is'


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
