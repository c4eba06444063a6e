"""From a kernel file, its modelled run and what was tried to what to try next. Pure."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from ratchet.advise import divide, hints, layout, mask, predict, resident, scale, strips, tiles
from ratchet.advise.advice import Advice, Edit, Record, Rewrite
from ratchet.advise.syntax import File
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
    current = program(file.source)
    made: dict[str, Advice] = {}
    for rewrite in _with_room(file, judged):
        result = program(rewrite.after)
        cycles = predict.saved(run, rewrite)
        if result in judged or result == current or result in made or not cycles or _overflows(rewrite, past, current):
            continue
        made[result] = Advice(
            rewrite=rewrite,
            evidence=predict.evidence(run, rewrite),
            saved_cycles=cycles,
            latency_ms=(run.cycles - cycles) / timeline.clock_hz * 1e3,
            record=records(past).get(rewrite.edit, Record()),
            lost_before=_lost(rewrite, past),
        )
    return tuple(sorted(made.values(), key=lambda one: (-one.worth, one.rewrite.edit.value, one.rewrite.subject)))


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


def _lost(rewrite: Rewrite, past: Sequence[Followed]) -> str:
    """The newest attempt at the same edit that was not kept, unless a later one was."""
    lost = ""
    for one in past:
        same = one.rewrite.edit is rewrite.edit and one.rewrite.subject == rewrite.subject
        if one.attempt.here and same and one.rewrite.point == rewrite.point:
            lost = "" if one.attempt.kept else one.attempt.id
    return lost
