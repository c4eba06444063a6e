"""Two experiments side by side, as a person reads it and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ratchet.values import Row, Timeline
from ratchet.values.blame import OTHER
from ratchet.values.difference import Difference, LimitChange, LineChange, LossChange, Part, Side, Spent
from ratchet.values.loss import key_of
from ratchet.values.place import Place, SourceLine
from ratchet.view.document import Tables, numbers, plain, same
from ratchet.view.occupancy import limit_in_words, turns_in_words
from ratchet.view.text import change, clean, columns, fixed, kind_of, number, size, times, waited, where

_ROWS = 12
"""Lines of a table that are shown; ``--json`` has all of them."""
_TEXT = 60
_SOURCE_LINES = 200
_LEAST = 0.001
"""Changes below this share of the older run are left out of the tables."""


def difference_text(differs: Difference) -> str:
    """All of it, without a final newline. Text of a kernel's is indented: none can pass for a line of ours."""
    before, after = differs.before, differs.after
    lines = [
        f"before  {_experiment(before.row)}",
        f"after   {_experiment(after.row)}",
        *(f"  {line}" for line in columns([["", "before", "after", "change"], *_totals(differs)], numbers=False)),
    ]
    if differs.conditions:
        what = ", ".join(differs.conditions)
        lines.append(
            f"not judged under equal conditions ({what} differ): the ratchet would not compare their latencies"
        )
    lines += _explained(differs)
    lines += _source(differs)
    return "\n".join(lines)


def _experiment(row: Row) -> str:
    return clean(f"{row.id} {row.kernel} {row.status} {row.decision}: {row.note}")


def _totals(differs: Difference) -> Iterator[list[str]]:
    before, after = differs.before, differs.after
    rows = (before.row, after.row)
    kinds = list(dict.fromkeys(kind_of(row.evaluator) for row in rows))
    yield _total(
        f"latency, {' and '.join(kinds)}", [number(row.median_ms) for row in rows], lambda ms: f"{fixed(ms)} ms"
    )
    yield from _bands(rows)
    yield _total("score", [number(row.score) for row in rows], fixed)
    yield _total("VMEM", [number(row.vmem_bytes) for row in rows], _bytes)
    yield _total("spills in the program", [number(row.spills) for row in rows], _count)
    if before.timeline is None or after.timeline is None or differs.spilled is None:
        return
    runs, spilled = (before.timeline, after.timeline), differs.spilled
    yield _total("spill stores executed", [one.stores for one in spilled], _count)
    yield _total("spill loads executed", [one.loads for one in spilled], _count)
    yield _total("read from HBM", [run.hbm_read_bytes for run in runs], _bytes)
    yield _total("written to HBM", [run.hbm_write_bytes for run in runs], _bytes)
    yield _total("grid steps", [run.grid_steps for run in runs], _count)
    yield _total("cycles", [run.cycles for run in runs], _count)
    yield _total("empty bundles", [run.empty_bundles for run in runs], _count)
    yield _total("cycles waiting for DMAs", [run.dma_wait_cycles for run in runs], _count)


def _total(label: str, values: Sequence[float | None], shown: Callable[[float], str]) -> list[str]:
    old, new = values
    cells = ["-" if value is None else shown(value) for value in values]
    changed = "same" if old == new else "" if old is None or new is None else change(new, old)
    if label.startswith("latency") and old and new and old != new:
        changed = f"{times(old / new)} as fast, time {changed}"
    return [label, *cells, changed]


def _bands(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Where both latencies have a band: what a difference between the two may rest on."""
    bands = [(number(row.band_low_ms), number(row.band_high_ms)) for row in rows]
    known = [(low, high) for low, high in bands if low is not None and high is not None]
    if len(known) == len(bands):
        (low, high), (later_low, later_high) = known
        apart = high < later_low or later_high < low
        shown = [f"{fixed(low, 4)} to {fixed(high, 4)}" for low, high in known]
        yield ["90 % band, ms", *shown, "apart" if apart else "they overlap: which is faster is not sure"]


def _bytes(value: float) -> str:
    return size(int(value))


def _count(value: float) -> str:
    return f"{int(value):,}"


def _explained(differs: Difference) -> list[str]:
    before, after = differs.before.timeline, differs.after.timeline
    if before is None or after is None:
        without = ", ".join(clean(side.row.id, 24) for side in (differs.before, differs.after) if side.timeline is None)
        return [
            "",
            f"where the cycles went is not recorded of {without}: nothing was modelled, or its evidence is gone",
        ]
    total = after.cycles - before.cycles
    if not any(one.change for one in differs.spent):
        return ["", "where the cycles went is the same in both"]
    least = max(1, _LEAST * before.cycles)
    lines = ["", f"what explains {total:+,} cycles ({_ms(total, after)}); the parts sum to them"]
    lines += _table(
        ["change", "of all", "before", "after", "what"], [_spent(one, total) for one in _big(differs.spent, least)]
    )
    lines += ["", "by line of the kernel file, as it is after the change"]
    lines += _table(["change", "before", "after", "line", ""], [_line(one) for one in _big(differs.lines, least)])
    limits = _big(differs.limits, least)
    if limits:
        lines += ["", "along the programs of the kernels: what keeps their units from more"]
        rows = [[f"{one.change:+,}", f"{one.before:,}", f"{one.after:,}", limit_in_words(one.limit)] for one in limits]
        lines += _table(["change", "before", "after", "cycles"], rows)
        lines += [f"  ends of turns {name}: {_turns(run)}" for name, run in (("before", before), ("after", after))]
    changed = [one for one in differs.losses if abs(one.change) >= least]
    if changed:
        lines += ["", "losses: what removing each would save at best"]
        lines += _table(["change", "before", "after", "loss"], [_loss(one, before, after) for one in changed])
    return lines


def _big(changes: Sequence[Any], least: float) -> list[Any]:
    return [one for one in changes if abs(one.change) >= least]


def _table(heading: list[str], rows: list[list[str]]) -> list[str]:
    shown = rows[:_ROWS]
    lines = [f"  {line}" for line in columns([heading, *shown], numbers=True)] if rows else ["  (no large change)"]
    if len(rows) > _ROWS:
        lines.append(f"  and {len(rows) - _ROWS} more: see --json")
    return lines


def _spent(one: Spent, total: int) -> list[str]:
    share = f"{one.change / total:.0%}" if total else "-"
    return [f"{one.change:+,}", share, f"{one.before:,}", f"{one.after:,}", what(one)]


def what(one: Spent) -> str:
    """``empty bundles that wait for MXU, before most at kernel.py:4``"""
    side = "after" if one.change > 0 else "before"
    at = "" if one.place is None else f", {side} most {waited(one.place)}"
    match one.part:
        case Part.ISSUE:
            return f"bundles that issue on {one.unit}{at}"
        case Part.STALL:
            unit = "the order of the program" if one.unit == OTHER else one.unit
            return f"empty bundles that wait for {unit}{at}"
        case Part.WAIT:
            return f"waiting for DMAs and semaphores{at}"
        case Part.DELAY:
            return f"delays that the compiler asks for{at}"


def _line(one: LineChange) -> list[str]:
    place, only = one.after or one.before, ""
    if one.after is None:
        only = " (gone)"
    elif one.before is None:
        only = " (new)"
    named = where(place) if place is not None else ""
    return [
        f"{one.change:+,}", f"{one.before_cycles:,}", f"{one.after_cycles:,}", f"{named}{only}", clean(one.text, _TEXT)
    ]  # fmt: skip


def _loss(one: LossChange, before: Timeline, after: Timeline) -> list[str]:
    kind, unit, _ = key_of(one.loss)
    return [
        _ms(one.change, after),
        _ms(one.before.cycles, before, sign="") if one.before else "-",
        _ms(one.after.cycles, after, sign="") if one.after else "-",
        f"{kind.value} {unit}".rstrip(),
    ]


def _turns(run: Timeline) -> str:
    return "; ".join(filter(None, map(turns_in_words, run.occupancy))) or "none"


def _ms(cycles: int, run: Timeline, sign: str = "+") -> str:
    return f"{cycles / run.clock_hz * 1e3:{sign}.4f} ms"


def _source(differs: Difference) -> list[str]:
    if differs.source is None:
        return ["", "source: one of the kernel files is not in this clone: fetch refs/ratchet/*"]
    if not differs.source:
        return ["", "source: the same"]
    lines = ["", "source", *(f"  {_of_diff(line)}" for line in differs.source[:_SOURCE_LINES])]
    if len(differs.source) > _SOURCE_LINES:
        lines.append(f"  and {len(differs.source) - _SOURCE_LINES} more lines: see --json")
    return lines


def _of_diff(line: str) -> str:
    """A line of a diff: its indentation counts."""
    mark, text = line[:1], line[1:]
    return f"{mark}{' ' * (len(text) - len(text.lstrip(' ')))}{clean(text)}".rstrip()


def difference_document(differs: Difference) -> dict[str, Any]:
    """The same as plain JSON values, with nothing left out."""
    document: dict[str, Any] = plain(differs, _TABLES)
    return document


_CYCLES = {"before_cycles": "before", "after_cycles": "after", "change_cycles": "change"}
_TABLES: Tables = {
    Difference: {"conditions_that_differ": "conditions", "modelled": "modelled", ...: ()},
    Side: {
        **same("id", "commit", "kernel", "status", "decision", "note", of="row"),
        "kind": lambda side: kind_of(side.row.evaluator),
        **numbers("score", "vmem_bytes", "spills", of="row", latency_ms="median_ms"),
        "run": "timeline",
    },
    Timeline: same(
        "cycles", "clock_hz", "empty_bundles", "dma_wait_cycles", "hbm_read_bytes", "hbm_write_bytes", "grid_steps"
    ),
    Spent: {...: (), **_CYCLES, "where": "place"},
    LineChange: {
        ...: (),
        "before": lambda one: _place(one.before),
        "after": lambda one: _place(one.after),
        "change_cycles": "change",
    },
    LimitChange: {...: (), **_CYCLES},
    LossChange: {
        "kind": "loss.kind",
        "unit": lambda one: key_of(one.loss)[1],
        "before_cycles": "before.cycles",
        "after_cycles": "after.cycles",
    },
}


def _place(place: Place | None) -> dict[str, Any] | None:
    if place is None:
        return None
    return {"where": where(place), "line": place.line if isinstance(place, SourceLine) else 0}
