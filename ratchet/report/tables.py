"""Tables of a report that are more than a list of values: the source with its cycles, and the conditions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath

from ratchet.loop.decide import conditions_of
from ratchet.report import words
from ratchet.report.story import Story
from ratchet.values import Conditions
from ratchet.values.place import Op, SourceLine
from ratchet.view.text import clean, where

_LABELS = {
    "evaluator": "evaluator",
    "chip": "chip",
    "compiler": "compiler",
    "series": "first seal of the series",
    "problem": "digest of the problem",
}
_LEAST = 0.005
"""Shares of a line's cycles below this are not named."""
_MOSTLY = 3


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
    rows: int
    changed: tuple[str, ...]
    """What differs from the series before."""


def source_lines(story: Story) -> list[SourceRow]:
    """The current kernel's file with its cycles, then what has no line in it; empty where either is not here."""
    evidence, track = story.material.evidence, story.main
    current = track.current if track else None
    if evidence is None or evidence.timeline is None or current is None:
        return []
    source = story.material.sources.get(current.row.kernel_blob)
    timeline, name = evidence.timeline, PurePosixPath(current.row.kernel).name
    if source is None:
        return []
    lines = source.splitlines()
    cycles: Counter[int] = Counter()
    parts: dict[int, Counter[str]] = {}
    rest = []
    for line in timeline.blame.lines:
        split = Counter({words.UNITS.get(unit, unit): count for unit, count in line.issue_cycles.items()})
        for unit, count in line.stall_cycles.items():
            split[f"empty for {words.UNITS.get(unit, unit)}"] += count
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
                rows=len(numbers),
                changed=tuple(
                    label
                    for name, label in _LABELS.items()
                    if before is not None and getattr(before, name) != getattr(one, name)
                ),
            )
        )
        before = one
    return made
