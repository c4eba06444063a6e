"""From a kernel file, its modelled run and what was tried to what to try next. Pure."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from ratchet.advise import divide, hints, layout, mask, predict, resident, scale, strips, tiles
from ratchet.advise.advice import Advice, Edit, Record, Rewrite
from ratchet.kernelfile.knobs import in_words
from ratchet.kernelfile.syntax import File
from ratchet.values import Timeline
from ratchet.values.status import Refusal, Status

PATTERNS: tuple[Callable[[File], Iterator[Rewrite]], ...] = (
    tiles.rewrites,
    resident.rewrites,
    mask.rewrites,
    scale.rewrites,
    layout.rewrites,
    strips.rewrites,
    divide.rewrites,
    hints.rewrites,
)


_NEAR = 0.06
"""An edit that makes a kernel slower by less may win together with another one."""
_MOST_NEAR = 8


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An experiment: what it made of which version, and what came of it."""

    id: str
    before: bytes
    after: bytes
    status: str
    kept: bool
    gain: float | None
    """Share of the latency that it saved; None where that is not known."""
    here: bool
    """Whether it is of this kernel, under the conditions that hold now."""


@dataclass(frozen=True, kw_only=True)
class Followed:
    """An attempt that is an edit of ours."""

    attempt: Attempt
    rewrite: Rewrite


def advise(file: File, timeline: Timeline, attempts: Sequence[Attempt]) -> tuple[Advice, ...]:
    """What to try next, what is worth most first; nothing that was judged already, and nothing that saves nothing.

    Args:
      file: the kernel as it is.
      timeline: its modelled run.
      attempts: of the ledger, oldest first.
    """
    run = predict.Run(timeline=timeline, file=file.name)
    past = followed(attempts, file.name)
    judged = {program(one.after): one for one in attempts if one.here}
    known, current = records(past), program(file.source)
    made: dict[str, Advice] = {}
    for rewrite in _with_room(file, judged):
        result, cycles, lost = program(rewrite.after), predict.saved(run, rewrite), _lost(rewrite, past)
        if result == current or result in made or not cycles or _overflows(rewrite, past, current):
            continue
        record = known.get(rewrite.edit, Record())
        made[result] = Advice(
            rewrite=rewrite,
            evidence=predict.evidence(run, rewrite),
            saved_cycles=cycles,
            latency_ms=run.without(cycles),
            confidence=record.confidence * 0.5 ** len(lost),
            record=record,
            lost_before=lost,
        )
    for pair in _pairs(file, run, [made[one] for one in made if one in judged and _lost_little(judged[one])]):
        made.setdefault(program(pair.rewrite.after), pair)
    found = (one for result, one in made.items() if result not in judged)
    return tuple(sorted(found, key=lambda one: (-one.worth, one.rewrite.edit.value, one.rewrite.subject)))


def rewrites(file: File) -> tuple[Rewrite, ...]:
    """Every edit whose pattern is in the file."""
    return tuple(one for pattern in PATTERNS for one in pattern(file))


def program(source: bytes) -> str:
    """Equal for versions that differ in comments and layout alone; those that are no Python differ by their bytes."""
    try:
        text = ast.dump(ast.parse(source)).encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        text = source
    return hashlib.sha256(text).hexdigest()


def followed(attempts: Sequence[Attempt], name: str) -> tuple[Followed, ...]:
    """The attempts that made one of our edits, whoever made it."""

    @cache
    def by_result(before: bytes) -> Mapping[str, Rewrite]:
        try:
            file = File.of(before, name)
        except Refusal:
            return {}
        every = rewrites(file)
        higher = [one for rewrite in every if (one := _raised(rewrite, name)) is not None]
        return {program(one.after): one for one in (*higher, *every)}

    pairs = [(one, by_result(one.before).get(program(one.after))) for one in attempts if one.before != one.after]
    return tuple(Followed(attempt=one, rewrite=rewrite) for one, rewrite in pairs if rewrite is not None)


def records(past: Sequence[Followed]) -> Mapping[Edit, Record]:
    """What came of each edit."""
    found: dict[Edit, Record] = {}
    for one in past:
        before = found.get(one.rewrite.edit, Record())
        kept, gain = one.attempt.kept, one.attempt.gain
        found[one.rewrite.edit] = Record(
            followed=before.followed + 1,
            kept=before.kept + kept,
            gains=(*before.gains, gain) if kept and gain is not None else before.gains,
        )
    return found


def _pairs(file: File, run: predict.Run, near: Sequence[Advice]) -> Iterator[Advice]:
    """Edits of this version that each lost little, two at a time, one made on top of the other."""
    by_kind = {_kind(one.rewrite): one for one in near}
    for first in near[:_MOST_NEAR]:
        for rewrite in rewrites(File.of(first.rewrite.after, file.name)):
            second = by_kind.get(_kind(rewrite))
            if second is None or second is first:
                continue
            cycles = min(first.saved_cycles + second.saved_cycles, run.most)
            lines = tuple(sorted({*first.rewrite.lines, *second.rewrite.lines}))
            names = f"{_named(first.rewrite)}; {_named(rewrite)}"
            yield Advice(
                rewrite=Rewrite(edit=Edit.PAIR, after=rewrite.after, lines=lines, subject=names),
                evidence=(*first.evidence, *second.evidence),
                saved_cycles=cycles,
                latency_ms=run.without(cycles),
                confidence=first.confidence * second.confidence,
                record=Record(),
            )


def _lost_little(attempt: Attempt) -> bool:
    return not attempt.kept and attempt.gain is not None and attempt.gain > -_NEAR


def _kind(rewrite: Rewrite) -> tuple[Edit, str]:
    return rewrite.edit, rewrite.subject


def _named(rewrite: Rewrite) -> str:
    return f"{rewrite.edit.value} {in_words(rewrite.point) if rewrite.point else rewrite.subject}"


def _with_room(file: File, judged: Mapping[str, Attempt]) -> Iterator[Rewrite]:
    """Every edit; and of those that overflowed VMEM the same under a higher limit."""
    for rewrite in rewrites(file):
        yield rewrite
        attempt = judged.get(program(rewrite.after))
        if attempt is not None and attempt.status == Status.VMEM_OVERFLOW.name:
            higher = _raised(rewrite, file.name)
            if higher is not None:
                yield higher


def _raised(rewrite: Rewrite, name: str) -> Rewrite | None:
    if rewrite.edit is not Edit.LARGER:
        return None
    after = hints.raised(File.of(rewrite.after, name))
    return replace(rewrite, edit=Edit.VMEM, after=after) if after is not None and after != rewrite.after else None


def _overflows(rewrite: Rewrite, past: Sequence[Followed], current: str) -> bool:
    """Whether a smaller block of the same side was too large for VMEM, in the version that there is now."""
    if rewrite.edit is not Edit.LARGER:
        return False
    for one in past:
        attempt, other = one.attempt, one.rewrite
        smaller = other.edit is Edit.LARGER and other.subject == rewrite.subject and other.factor < rewrite.factor
        overflowed = attempt.here and attempt.status == Status.VMEM_OVERFLOW.name
        if smaller and overflowed and program(attempt.before) == current:
            return True
    return False


def _lost(rewrite: Rewrite, past: Sequence[Followed]) -> tuple[str, ...]:
    """The attempts at the same edit that were not kept, after the last one that was."""
    lost: list[str] = []
    for one in past:
        same = one.rewrite.edit is rewrite.edit and one.rewrite.subject == rewrite.subject
        if one.attempt.here and same and one.rewrite.point == rewrite.point:
            lost = [] if one.attempt.kept else [*lost, one.attempt.id]
    return tuple(lost)
