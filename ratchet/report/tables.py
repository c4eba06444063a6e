"""Tables of a report, the source with its cycles and the conditions; and the JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ratchet.loop.decide import conditions_of
from ratchet.report import words
from ratchet.report.story import Experiment, GridStep, StepBar, Story, Track
from ratchet.values import Conditions, Timeline, VmemAllocation
from ratchet.values.occupancy import DMA, NOTHING, Occupancy, Stretch
from ratchet.values.place import Op, SourceLine
from ratchet.values.program import VmemUse
from ratchet.view.document import Tables, numbers, plain, same
from ratchet.view.losses import losses_in_words, omissions_in_words
from ratchet.view.occupancy import OCCUPANCY, lines_in_words
from ratchet.view.text import clean, kind_of, number, size, where

SCHEMA_VERSION = 1
"""Version of the JSON document that ``ratchet report --json`` prints."""
_LABELS = {
    "evaluator": "evaluator",
    "chip": "chip",
    "compiler": "compiler",
    "series": "first seal of the series",
    "problem": "digest of the problem",
}
_LEAST = 0.005
"""Shares of a line's cycles below this are not named."""
_MOSTLY, _DETAIL = 3, 60
PARTS = {
    "issues": "var(--issue)",
    "empty, waits for a result": "var(--stall)",
    "waits for DMAs or chips": "var(--wait)",
    "delay asked for": "var(--delay)",
}
_BUSY = ("unit is busy (stronger: more)", "empty bundles (stronger: more)")
KINDS = {
    _BUSY[0]: "var(--issue)",
    _BUSY[1]: "var(--stall)",
    "DMA under way": "var(--memory)",
    "waiting": "var(--wait)",
}
LIMITS = {
    "its unit is full": "var(--issue)",
    "another slot is full": "var(--memory)",
    "no slot is full": "var(--delay)",
    "empty bundles wait": "var(--stall)",
    "waits for DMAs or chips": "var(--wait)",
    "end of a turn": "var(--kept)",
}
"""What limits a stretch of a program, with its colour."""
_USES = {VmemUse.INPUT: "input", VmemUse.OUTPUT: "output", VmemUse.OPERAND: "operand", VmemUse.SPILLS: "spills"}


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """A line of the kernel file, with what it costs; or, without a number, something that has no line."""

    number: int
    text: str
    share: float
    """Of the run's cycles."""
    cycles: int
    mostly: str


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A series: the conditions under which some rows were judged."""

    values: tuple[tuple[str, str], ...]
    first: int
    last: int
    changed: tuple[str, ...]
    """What differs from the series before."""


def source_lines(story: Story) -> list[SourceRow]:
    """The current kernel's file with its cycles, then what has no line in it; empty where either is not here."""
    timeline, current = story.timeline, story.current
    if timeline is None or current is None:
        return []
    source, name = story.material.sources.get(current.row.kernel_blob), PurePosixPath(current.row.kernel).name
    if source is None:
        return []
    lines = source.splitlines()
    cycles: Counter[int] = Counter()
    parts: dict[int, Counter[str]] = {}
    rest = []
    for line in timeline.blame.lines:
        split = Counter({words.unit(unit): count for unit, count in line.issue_cycles.items()})
        for unit, count in line.stall_cycles.items():
            split[f"empty for {words.unit(unit)}"] += count
        split["waiting"] += line.wait_cycles
        split["delays"] += line.delay_cycles
        place = line.place
        if isinstance(place, SourceLine) and place.file == name and 0 < place.line <= len(lines):
            cycles[place.line] += line.cycles
            parts.setdefault(place.line, Counter()).update(split)
        else:
            what = where(place) + (" (outside the kernels)" if isinstance(place, Op) else "")
            rest.append((what, line.cycles, split))
    whole = max(1, timeline.cycles)
    rows = [
        SourceRow(
            number=at,
            text=indented(text),
            share=cycles[at] / whole,
            cycles=cycles[at],
            mostly=_mostly(parts.get(at, Counter()), cycles[at]),
        )
        for at, text in enumerate(lines, start=1)
    ]
    return rows + [
        SourceRow(number=0, text=what, share=count / whole, cycles=count, mostly=_mostly(split, count))
        for what, count, split in rest
        if count
    ]


def _mostly(parts: Counter[str], cycles: int) -> str:
    named = [(part, count / max(1, cycles)) for part, count in parts.most_common(_MOSTLY)]
    return ", ".join(f"{clean(part)} {share:.0%}" for part, share in named if share >= _LEAST)


def indented(text: str) -> str:
    """A line of a source without control characters; its indentation stays, with blanks for tabs."""
    indent = text[: len(text) - len(text.lstrip(" \t"))].expandtabs(4)
    return indent + clean(text)


def conditions(story: Story) -> list[Condition]:
    """The series of the main track, oldest first."""
    track = story.main
    made: list[Condition] = []
    before: Conditions | None = None
    for one in track.series if track else ():
        numbers = [each.number for each in track.experiments if conditions_of(each.row) == one] if track else []
        made.append(
            Condition(
                values=tuple((label, clean(getattr(one, name)) or "–") for name, label in _LABELS.items()),
                first=min(numbers),
                last=max(numbers),
                changed=tuple(
                    label
                    for name, label in _LABELS.items()
                    if before is not None and getattr(before, name) != getattr(one, name)
                ),
            )
        )
        before = one
    return made


# --- numbers of charts ---


def spent_table(timeline: Timeline) -> Mapping[str, Mapping[str, int]]:
    """Cycles by unit and part; they sum to those of the run."""
    issues, empty, waits, delay = PARTS
    table: dict[str, dict[str, int]] = {}
    for line in timeline.blame.lines:
        for unit, part, cycles in (
            *((unit, issues, cycles) for unit, cycles in line.issue_cycles.items()),
            *((unit, empty, cycles) for unit, cycles in line.stall_cycles.items()),
            ("waiting", waits, line.wait_cycles),
            ("delays", delay, line.delay_cycles),
        ):
            if cycles:
                row = table.setdefault(words.unit(unit), {})
                row[part] = row.get(part, 0) + cycles
    return table


def stretch_kind(one: Occupancy, stretch: Stretch) -> str:
    """Which of ``LIMITS`` it is."""
    own, other, none, empty, waits, end = LIMITS
    if stretch.turn_end and stretch.limit.unit != DMA:
        return end
    if stretch.limit.empty:
        return empty
    return {one.unit: own, DMA: waits, NOTHING: none}.get(stretch.limit.unit, other)


def stretch_bars(one: Occupancy) -> list[dict[str, object]]:
    """The stretches beside each other, as wide as the time that they take, as high as the kernel's unit is in use."""
    cycles, bars, before = max(1, one.cycles), [], 0
    for stretch in one.stretches:
        use = stretch.busy / max(1, stretch.cycles)
        bars.append({
            "start": before / cycles,
            "end": (before + stretch.cycles) / cycles,
            "use": min(1.0, use),
            "full": 1,
            "kind": stretch_kind(one, stretch),
            "shown": f"{use:.0%}",
            "why": stretch_limit(stretch),
            "lines": lines_in_words(stretch),
            "share": f"{stretch.cycles / cycles:.1%}, {stretch.executions:,} times",
        })  # fmt: skip
        before += stretch.cycles
    return bars


def stretch_limit(stretch: Stretch) -> str:
    """``vector stores full``, ``empty bundles wait for matrix units``."""
    unit = words.unit(stretch.limit.unit)
    if stretch.limit.empty:
        said = f"empty bundles wait for {unit}"
    else:
        said = {DMA: "waits for DMAs or chips", NOTHING: "no slot full"}.get(stretch.limit.unit, f"{unit} full")
    return f"end of a turn, {said}" if stretch.turn_end else said


def buffer_name(one: VmemAllocation, rank: int) -> str:
    """A name that no other buffer of the chart has, short enough for a phone."""
    number_of = "" if one.number is None else f" {one.number}"
    return f"{rank + 1}. {_USES.get(one.use, one.use.value)}{number_of} {clean(one.block)}".rstrip()


def step_bar(bar: StepBar, step: GridStep) -> dict[str, object]:
    """A bar on a lane of a grid step: a copy or a wait when it is, a unit by how busy it is."""
    if bar.lane.endswith("wait"):
        kind = "waiting"
    elif bar.lane.startswith(("DMA", "ICI")):
        kind = "DMA under way"
    else:
        kind = _BUSY[bar.lane == "stalls"]
    of_copy = size(bar.bytes) if bar.bytes else clean(bar.detail, _DETAIL)
    return {
        "lane": words.unit(bar.lane),
        "start": max(bar.start_us, step.start_us) - step.start_us,
        "end": min(bar.end_us, step.end_us) - step.start_us,
        "kind": kind,
        "share": max(bar.share, 0.04),
        "shown": f"{bar.share:.0%} of the step" if kind in _BUSY else of_copy,
        "took": f"{bar.end_us - bar.start_us:.3f} µs",
    }


def compute_roof(track: Track) -> float | None:
    """TFLOP/s at which the newest experiment that compute bounds would reach its roofline: products differ in peak."""
    for one in reversed(track.experiments):
        tflops, share = number(one.row.tflops), number(one.row.util_pct)
        if one.latency_ms and one.row.regime == "compute-bound" and tflops and share:
            return tflops / share * 100
    return None


def on_roofline(one: Experiment, bandwidth: float) -> tuple[float, float] | None:
    """FLOPs per byte, and TFLOP/s."""
    tflops, share = number(one.row.tflops), number(one.row.bw_util_pct)
    if not one.latency_ms or not tflops or not share:
        return None
    return tflops * 1e12 / (share / 100 * bandwidth), tflops


# --- JSON ---


def document(story: Story) -> dict[str, Any]:
    """What the page says, as plain values. Texts of the author's are as they are in the ledger."""
    material, timeline = story.material, story.timeline
    return {
        "schema_version": SCHEMA_VERSION,
        "kernel": material.kernel,
        "name": material.problem.kernel_name if material.problem else None,
        "head": material.head or None,
        "head_is_judged": bool(story.current) and not story.unjudged,
        "tracks": plain(story.tracks, _DOCUMENT),
        "limits": losses_in_words(timeline) if timeline else [],
        "needed": words.needed(timeline) if timeline else {},
        "occupancy": plain(timeline.occupancy, OCCUPANCY) if timeline else [],
        "not_modelled": omissions_in_words(timeline) if timeline else [],
        "believe": words.believe(story),
        "evidence": material.evidence.id if material.evidence else None,
        "origins": plain(material.origins),
        "other_kernels": dict(material.others),
    }


_DOCUMENT: Tables = {
    Track: {
        "evaluator": "evaluator",
        "kind": lambda track: kind_of(track.evaluator),
        "current": "current.row.id",
        "latency_ms": "current.latency_ms",
        "band_ms": lambda track: (
            track.current and [number(track.current.row.band_low_ms), number(track.current.row.band_high_ms)]
        ),
        **numbers("score", of="current.row"),
        "share_of_roofline": "current.share",
        "times_faster_than_first": lambda track: track.factor if track.gains else None,
        "best": lambda track: track.gains[0].row.id if track.gains else None,
        "experiments": "experiments",
    },
    Experiment: {
        "number": "number",
        **same("id", "time", "commit", "note", "status", of="row"),
        "outcome": "outcome",
        "why": words.why,
        "reason": "row.reason",
        ...: ("before",),
        "share_of_roofline": "share",
        "compared_with": "against.id",
        "judged_again": "again",
        "times_faster": "times",
    },
}
