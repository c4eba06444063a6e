"""From a kernel file, its modelled run and what was tried to what to try next. Pure."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ratchet.advise import arithmetic, layout, mask, predict, resident, strips, tiles
from ratchet.advise.advice import Advice, Edit, Record, Rewrite
from ratchet.kernelfile.knobs import in_words
from ratchet.kernelfile.program import Kernel, kernels
from ratchet.kernelfile.syntax import File
from ratchet.values import Timeline
from ratchet.values.status import Refusal, Status

PATTERNS: tuple[Callable[[Kernel], Iterator[Rewrite]], ...] = (
    resident.rewrites,
    mask.rewrites,
    arithmetic.rewrites,
    layout.rewrites,
    strips.rewrites,
    arithmetic.reciprocals,
    tiles.unrolled,
)
"""Of one kernel, whose function no other call runs."""
_WITHOUT_REFS = (arithmetic.rewrites, tiles.unrolled)
"""Those that do not ask what the function's parameters are."""
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


Followed = tuple[Attempt, Rewrite]
"""An attempt that is an edit of ours."""


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
    alone = [kernel for kernel in kernels(file) if kernel.alone]
    pairs = [(pattern, kernel) for pattern in PATTERNS for kernel in alone]
    known = [(pattern, kernel) for pattern, kernel in pairs if kernel.refs or pattern in _WITHOUT_REFS]
    return (*tiles.rewrites(file), *(one for pattern, kernel in known for one in pattern(kernel)))


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
        higher = [one for rewrite in every if (one := tiles.raised(rewrite, name)) is not None]
        return {program(one.after): one for one in (*higher, *every)}

    pairs = [(one, by_result(one.before).get(program(one.after))) for one in attempts if one.before != one.after]
    return tuple((one, rewrite) for one, rewrite in pairs if rewrite is not None)


def records(past: Sequence[Followed]) -> Mapping[Edit, Record]:
    """What came of each edit."""
    found: dict[Edit, list[Attempt]] = {}
    for attempt, rewrite in past:
        found.setdefault(rewrite.edit, []).append(attempt)
    gains = {edit: [one.gain for one in ones if one.kept and one.gain is not None] for edit, ones in found.items()}
    return {
        edit: Record(followed=len(ones), kept=sum(one.kept for one in ones), gains=tuple(gains[edit]))
        for edit, ones in found.items()
    }


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
        overflowed = attempt is not None and attempt.status == Status.VMEM_OVERFLOW.name
        if overflowed and (higher := tiles.raised(rewrite, file.name)) is not None:
            yield higher


def _overflows(rewrite: Rewrite, past: Sequence[Followed], current: str) -> bool:
    """Whether a smaller block of the same side was too large for VMEM, in the version that there is now."""
    return any(
        rewrite.edit is other.edit is Edit.LARGER
        and attempt.here
        and attempt.status == Status.VMEM_OVERFLOW.name
        and other.subject == rewrite.subject
        and other.factor < rewrite.factor
        and program(attempt.before) == current
        for attempt, other in past
    )


def _lost(rewrite: Rewrite, past: Sequence[Followed]) -> tuple[str, ...]:
    """The attempts at the same edit that were not kept, after the last one that was."""
    lost: list[str] = []
    for attempt, other in past:
        if attempt.here and _kind(other) == _kind(rewrite) and other.point == rewrite.point:
            lost = [] if attempt.kept else [*lost, attempt.id]
    return tuple(lost)
