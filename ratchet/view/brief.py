"""A brief as text and as a JSON document, within a number of tokens."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ratchet.loop.compare import BROAD_APART, TRADE_APART, WAITING_APART
from ratchet.process.boot import home
from ratchet.values import Row
from ratchet.values.blame import LineCost
from ratchet.values.brief import Brief, Suggestion, Task
from ratchet.values.loss import FormBound
from ratchet.values.place import SourceLine
from ratchet.view.document import Tables, dumps, numbers, plain
from ratchet.view.losses import form_in_words, losses_in_words, reasons_in_words
from ratchet.view.occupancy import occupancy_in_words
from ratchet.view.text import cause, change, clean, cut, first_line, fixed, size, where

CHARACTERS = 3.5
"""Of text for a token, at least: numbers and names take more tokens than prose."""
_MOST = (40, 25, 16, 10, 6, 4, 2, 1)
"""Entries of each list, until all fits."""
_LINE = 220
_REASONS, _KERNELS = 6, 2
"""That are named at most."""
BETTER = (
    f"a lower modelled time. One that trades issued cycles for waiting counts from {100 * TRADE_APART:g} % on, one "
    f"that only waits less from {100 * WAITING_APART:g} % on, any of what was hardly timed from "
    f"{100 * BROAD_APART:g} % on; below that it counts as the same"
)
"""What ``ratchet/loop/compare.py`` decides, before somebody aims at less."""
T = TypeVar("T", str, dict[str, Any])


def text_within(brief: Brief, tokens: int) -> str:
    """As text, lists cut to what fits; never longer than ``tokens``."""
    text = _within(lambda most: "\n".join(_lines(brief, most)), len, tokens)
    return text[: int(tokens * CHARACTERS)]


def document_within(brief: Brief, tokens: int) -> dict[str, Any]:
    """The same as JSON, lists cut to what fits where that is possible."""
    return _within(lambda most: _document(brief, most), lambda one: len(dumps(one)), tokens)


def _within(render: Callable[[int], T], length: Callable[[T], int], tokens: int) -> T:
    for most in _MOST:
        shown = render(most)
        if length(shown) <= tokens * CHARACTERS:
            break
    return shown


def warnings(brief: Brief) -> list[str]:
    """What is going wrong, in sentences."""
    said = []
    if brief.plateau:
        left = f"; {floors[0].lower()}{floors[1:]}" if (floors := _floors(brief)) else ""
        said.append(
            f"plateau: {brief.since_kept} experiments since the last that was kept; try something of another kind{left}"
        )
    if brief.repeated:
        said.append(f"repetition: most of the last failures changed {', '.join(map(clean, brief.repeated))}")
    if brief.twice:
        said.append(f"repetition: {brief.twice} experiments had the bytes of an earlier one")
    if brief.timeline is None:
        said.append("no modelled run of the incumbent is on this disk: judge it again with --fresh to see its cycles")
    return said


def _lines(brief: Brief, most: int) -> Iterator[str]:
    task, now = brief.task, brief.incumbent
    yield f"# {clean(task.kernel)}: {clean(task.name)}"
    yield clean(task.description)
    yield "change: the kernel alone; its reference, inputs, FLOPs and name are frozen"
    yield ""
    yield "## Incumbent"
    yield _incumbent(now) if now else "HEAD's kernel has no score yet: judge it first"
    turn = f"; a turn takes about {brief.turn_seconds:.0f} s" if brief.turn_seconds is not None else ""
    yield f"budget: {brief.experiments} experiments so far, {brief.seconds:.0f} s of judging{turn}"
    yield f"better: {BETTER}"
    yield from (f"WARNING {one}" for one in warnings(brief))
    if brief.timeline is not None:
        timeline = brief.timeline
        yield from filter(None, [_floors(brief)])
        yield ""
        yield "## Where its time goes"
        yield cut("; ".join(one.strip() for one in reasons_in_words(timeline, min(most, _REASONS))), 2 * _LINE)
        yield from (cut(occupancy_in_words(one), 2 * _LINE) for one in timeline.occupancy[: min(most, _KERNELS)])
        yield ""
        yield f"## Losses that remain, largest first (of {fixed(timeline.latency_ms)} ms)"
        yield from (cut(f"- {one}", _LINE) for one in losses_in_words(timeline, brief.refuted)[:most])
        yield ""
        yield "## Where its cycles go, by line"
        for cost in timeline.blame.lines[:most]:
            yield cut(_line(cost, timeline.cycles, brief.source), _LINE)
    if brief.suggestions or brief.no_faster or brief.not_modelled:
        advise = f"{home.PROGRAM} advise {shlex.quote(clean(task.kernel))}"
        yield ""
        yield f"## What to try (`{advise} --apply N` makes edit N)"
        yield from (cut(f"{one.number}. {_suggestion(one)}", _LINE) for one in brief.suggestions[:most])
        if brief.no_faster:
            yield f"modelled and not faster: {brief.no_faster} edits"
        if brief.not_modelled:
            yield f"not modelled yet: {brief.not_modelled} edits; `{advise}` models them"
    yield ""
    yield f"## Tried and failed: {len(brief.reverted)} ({_statuses(brief)}), newest first"
    yield from (cut(f"- {_row(row)}", _LINE) for row in brief.reverted[:most])
    yield ""
    yield f"## Kept: {len(brief.kept)}, newest first"
    yield from (cut(f"- {_row(row)}", _LINE) for row in brief.kept[:most])


def _floors(brief: Brief) -> str:
    """What the kernel can not get below, in any form and in its own; ``""`` where that is not known."""
    now, run = brief.incumbent, brief.timeline
    if now is None or not now.util_pct or run is None:
        return ""
    said = f"Floors: {fixed(float(now.median_ms) * float(now.util_pct) / 100)} ms for the problem ({now.regime})"
    form = next((loss for loss in run.blame.losses if isinstance(loss, FormBound)), None)
    return said if form is None else f"{said}; {form_in_words(form, run)}"


def _suggestion(one: Suggestion) -> str:
    moved = f"{fixed(one.predicted_ms)} ms, {change(one.predicted_ms, one.modelled_ms)}"
    return f"{clean(one.title)}: {moved}{', values checked' if one.checked else ''}"


def _incumbent(row: Row) -> str:
    vmem = f", VMEM {size(int(row.vmem_bytes))}" if row.vmem_bytes else ""
    return (
        f"{fixed(float(row.median_ms))} ms on {row.evaluator}, score {float(row.score):.6g}, "
        f"{float(row.util_pct):.2f} % of the roofline, {row.regime}{vmem}, {row.spills or 0} spills; row {row.id}"
    )


def _line(cost: LineCost, cycles: int, source: tuple[str, ...]) -> str:
    stall = sum(cost.stall_cycles.values())
    parts = [("stalled", stall), ("waiting", cost.wait_cycles)]
    of = ", ".join(f"{spent / max(1, cost.cycles):.0%} {name}" for name, spent in parts if spent)
    said = f" ({of})" if of else ""
    return (
        f"{cost.cycles / max(1, cycles):6.1%} {clean(where(cost.place))}{said}  {clean(_quoted(cost, source))}".rstrip()
    )


def _row(row: Row) -> str:
    latency = f"{fixed(float(row.median_ms))} ms" if row.median_ms else "no latency"
    return f"{row.id} {row.status} {latency}: {first_line(row.note)} | {cause(row.reason)}"


def _statuses(brief: Brief) -> str:
    counts = Counter(row.status for row in brief.reverted)
    return ", ".join(f"{count} {status}" for status, count in counts.most_common()) or "none"


def _document(brief: Brief, most: int) -> dict[str, Any]:
    timeline = brief.timeline
    lines = timeline.blame.lines[:most] if timeline else ()
    cycles = max(1, timeline.cycles) if timeline else 1
    tables: Tables = {
        Row: {
            "id": "id",
            "note": lambda row: cut(next(iter(row.note.splitlines()), ""), _LINE),
            "status": "status",
            "reason": lambda row: cut(row.reason, _LINE),
            **numbers("score", latency_ms="median_ms"),
            "vmem_bytes": lambda row: int(row.vmem_bytes) if row.vmem_bytes else None,
        },
        LineCost: {
            "where": "place",
            "source": lambda cost: _quoted(cost, brief.source),
            "share": lambda cost: round(cost.cycles / cycles, 4),
            "stalled": lambda cost: sum(cost.stall_cycles.values()),
            "waiting": "wait_cycles",
            "cycles": "cycles",
        },
    }
    return {
        "kernel": brief.task.kernel,
        "problem": plain(brief.task, {Task: {...: ("kernel",)}}),
        "incumbent": plain(brief.incumbent, tables),
        "floors": _floors(brief),
        "reasons": reasons_in_words(timeline, min(most, _REASONS)) if timeline else [],
        "occupancy": [occupancy_in_words(one) for one in timeline.occupancy[: min(most, _KERNELS)]] if timeline else [],
        "losses": losses_in_words(timeline, brief.refuted)[:most] if timeline else [],
        "lines": plain(lines, tables),
        "failed": plain(brief.reverted[:most], tables),
        "failed_by_status": dict(Counter(row.status for row in brief.reverted)),
        "kept": plain(brief.kept[:most], tables),
        "try": plain(brief.suggestions[:most]),
        "edits": {"no_faster": brief.no_faster, "not_modelled": brief.not_modelled},
        "better": BETTER,
        "warnings": warnings(brief),
        "budget": {
            "experiments": brief.experiments,
            "judging_seconds": round(brief.seconds, 1),
            "experiments_since_kept": brief.since_kept,
            "turn_seconds": brief.turn_seconds,
        },
    }


def _quoted(cost: LineCost, source: tuple[str, ...]) -> str:
    place = cost.place
    return source[place.line - 1].strip() if isinstance(place, SourceLine) and place.line <= len(source) else ""
