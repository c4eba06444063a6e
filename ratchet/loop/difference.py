"""Two experiments side by side: what explains the difference between their latencies. Pure.

Every cycle of a modelled run is in one part of one line, so the changes of the parts sum to the whole difference. Lines
of the two kernel files are matched by the diff of their texts: what moved is the same line, and so is a line that was
edited in its place.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from ratchet.values import Row, Timeline
from ratchet.values.blame import LineCost
from ratchet.values.difference import Difference, LimitChange, LineChange, LossChange, Part, Side, Spent, Spilled
from ratchet.values.loss import key_of
from ratchet.values.occupancy import Limit
from ratchet.values.place import Place, SourceLine

CONDITIONS = ("kernel", "evaluator", "chip", "compiler", "seal", "problem")
_CONTEXT = 3

_Key = tuple[Part, str]


def difference(before: Side, after: Side) -> Difference:
    """What differs between two experiments."""
    conditions = tuple(name for name in CONDITIONS if getattr(before.row, name) != getattr(after.row, name))
    source = None
    if before.source is not None and after.source is not None:
        source = tuple(_unified(before.source, after.source, before.row, after.row))
    known = Difference(
        before=before,
        after=after,
        conditions=conditions,
        source=source,
        spent=(),
        lines=(),
        losses=(),
        limits=(),
        spilled=None,
    )
    if before.timeline is None or after.timeline is None:
        return known
    return replace(
        known,
        spent=_spent(before.timeline, after.timeline),
        lines=_lines(before, after),
        losses=_losses(before.timeline, after.timeline),
        limits=_limits(before.timeline, after.timeline),
        spilled=(_spilled(before.timeline), _spilled(after.timeline)),
    )


def _unified(old: str, new: str, before: Row, after: Row) -> Iterator[str]:
    names = (f"{before.kernel} {before.id}", f"{after.kernel} {after.id}")
    return difflib.unified_diff(old.splitlines(), new.splitlines(), *names, n=_CONTEXT, lineterm="")


def _parts(line: LineCost) -> dict[_Key, int]:
    parts = {(Part.ISSUE, unit): cycles for unit, cycles in line.issue_cycles.items()}
    parts |= {(Part.STALL, unit): cycles for unit, cycles in line.stall_cycles.items()}
    return parts | {(Part.WAIT, ""): line.wait_cycles, (Part.DELAY, ""): line.delay_cycles}


def _spent(before: Timeline, after: Timeline) -> tuple[Spent, ...]:
    sides = [_by_part(before), _by_part(after)]
    keys = dict.fromkeys([*sides[0], *sides[1]])
    changes = [_one(key, *(side.get(key, Counter()) for side in sides)) for key in keys]
    return tuple(sorted((one for one in changes if one.before or one.after), key=lambda one: -abs(one.change)))


def _by_part(timeline: Timeline) -> dict[_Key, Counter[Place]]:
    parts: dict[_Key, Counter[Place]] = {}
    for line in timeline.blame.lines:
        for key, cycles in _parts(line).items():
            parts.setdefault(key, Counter())[line.place] += cycles
    return parts


def _one(key: _Key, before: Counter[Place], after: Counter[Place]) -> Spent:
    old, new = before.total(), after.total()
    more = after if new > old else before
    return Spent(
        part=key[0],
        unit=key[1],
        before=old,
        after=new,
        place=max(more, key=lambda place: more[place]) if new != old else None,
    )


def _lines(before: Side, after: Side) -> tuple[LineChange, ...]:
    assert before.timeline is not None
    assert after.timeline is not None
    olds, news = _cycles(before.timeline), _cycles(after.timeline)
    matching = None
    if before.source is not None and after.source is not None:
        matching = _matching(before.source.splitlines(), after.source.splitlines())
    pairs = {place: _moved(place, before.row, after.row, matching) for place in olds}
    texts = [(side.source or "").splitlines() for side in (before, after)]
    changes = [
        LineChange(
            before=place,
            after=pair,
            before_cycles=cycles,
            after_cycles=news.get(pair, 0) if pair is not None else 0,
            text=_text(pair, texts[1], after.row) or _text(place, texts[0], before.row),
        )
        for place, cycles in olds.items()
        for pair in (pairs[place],)
    ]
    matched = set(pairs.values())
    changes += [
        LineChange(
            before=None, after=place, before_cycles=0, after_cycles=cycles, text=_text(place, texts[1], after.row)
        )
        for place, cycles in news.items()
        if place not in matched
    ]
    return tuple(sorted((one for one in changes if one.change), key=lambda one: -abs(one.change)))


def _cycles(timeline: Timeline) -> Mapping[Place, int]:
    cycles: Counter[Place] = Counter()
    for line in timeline.blame.lines:
        cycles[line.place] += line.cycles
    return cycles


def _moved(place: Place, before: Row, after: Row, matching: Mapping[int, int] | None) -> Place | None:
    """What a place of the older program is in the newer one; None for a line that is not there any more."""
    if not isinstance(place, SourceLine) or place.file != _file(before):
        return place
    line = place.line if matching is None else matching.get(place.line)
    return None if line is None else SourceLine(file=_file(after), line=line)


def _matching(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Lines of ``new`` by those of ``old``, both counted from 1; edited ones where as many were replaced by as many."""
    matching: dict[int, int] = {}
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal" or (tag == "replace" and b - a == d - c):
            matching |= {a + place + 1: c + place + 1 for place in range(b - a)}
    return matching


def _file(row: Row) -> str:
    return PurePosixPath(row.kernel).name


def _text(place: Place | None, lines: Sequence[str], row: Row) -> str:
    if not isinstance(place, SourceLine) or place.file != _file(row) or place.line > len(lines):
        return ""
    return lines[place.line - 1].strip()


def _losses(before: Timeline, after: Timeline) -> tuple[LossChange, ...]:
    olds, news = ({key_of(loss): loss for loss in one.blame.losses} for one in (before, after))
    changes = [LossChange(before=olds.get(key), after=news.get(key)) for key in dict.fromkeys([*olds, *news])]
    return tuple(sorted(changes, key=lambda one: -abs(one.change)))


def _limits(before: Timeline, after: Timeline) -> tuple[LimitChange, ...]:
    olds, news = Counter[Limit](), Counter[Limit]()
    for timeline, sums in ((before, olds), (after, news)):
        for one in (limited for kernel in timeline.occupancy for limited in kernel.limits):
            sums[one.limit] += one.cycles
    changes = [LimitChange(limit=limit, before=olds[limit], after=news[limit]) for limit in {**olds, **news}]
    return tuple(sorted((one for one in changes if one.change), key=lambda one: -abs(one.change)))


def _spilled(timeline: Timeline) -> Spilled:
    lines = timeline.blame.lines
    return Spilled(stores=sum(line.spill_stores for line in lines), loads=sum(line.spill_loads for line in lines))
