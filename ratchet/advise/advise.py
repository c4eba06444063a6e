"""From a kernel file, its modelled run and what was tried to the edits that are left, in an order. Pure.

The order is a guess: the cycles that an edit is about, those that ``account/`` blames on lines, the pipeline, waits and
stalls, less what it makes worse, times how often its like was kept. Nothing is compiled here; what an edit is worth
the judge's model says (``search/predict.py``), and what it said of others decides which are tried together.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from ratchet.advise import (
    arithmetic,
    fetched,
    heads,
    joined,
    layout,
    mask,
    order,
    outside,
    pages,
    parted,
    resident,
    staggered,
    tiles,
)
from ratchet.advise.advice import Advice, Edit, Evidence, Record, Rewrite
from ratchet.advise.prediction import Fate, Prediction, fate
from ratchet.kernelfile.knobs import in_words
from ratchet.kernelfile.program import Kernel, kernels
from ratchet.kernelfile.syntax import File, tree
from ratchet.values import SourceLine, Timeline
from ratchet.values.blame import LineCost
from ratchet.values.loss import IdleSteps, Loss, LossKind, MatrixBound, Spills, Stalls, Waits
from ratchet.values.place import Code
from ratchet.values.status import Refusal, Status

PATTERNS: tuple[Callable[[Kernel], Iterator[Rewrite]], ...] = (
    resident.rewrites,
    mask.rewrites,
    arithmetic.rewrites,
    layout.rewrites,
    tiles.strips,
    arithmetic.reciprocals,
    tiles.unrolled,
    parted.rewrites,
    heads.rewrites,
    pages.rewrites,
    fetched.rewrites,
    outside.rewrites,
    order.rewrites,
)
"""Of one kernel, whose function no other call runs."""
_WITHOUT_REFS = (arithmetic.rewrites, tiles.unrolled)
"""Those that do not ask what the function's parameters are."""
_NEAR = 0.06
"""An edit that makes a kernel slower by less may win together with another one."""
_MOST_NEAR = 8
_SPARED = 0.5
"""Of the vector arithmetic on a line that an edit makes cheaper and does not take away."""
_DOUBTFUL = 0.05
"""Of what a change of a block's size saves, where it should cost more than that."""


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


def advise(
    file: File, timeline: Timeline, attempts: Sequence[Attempt], known: Mapping[str, Prediction] | None = None
) -> tuple[Advice, ...]:
    """The edits of a file that were not judged yet, worth most first.

    Two edits together come behind them, once all single ones are known and none is faster: those first that lost least.

    Args:
      file: the kernel as it is.
      timeline: its modelled run.
      attempts: of the ledger, oldest first.
      known: what was modelled of the file and of its edits, by ``program``.
    """
    known = known or {}
    run = Run(timeline=timeline, file=file.name)
    past, current = followed(attempts, file.name), program(file.source)
    judged = {program(one.after): one for one in attempts if one.here}
    tried = Tried(judged=judged, known=known, base=known.get(current))
    counts = records(past)
    made: dict[str, Advice] = {}
    for rewrite in _with_room(file, tried):
        result, lost = program(rewrite.after), _lost(rewrite, past)
        if result == current or result in made:
            continue
        record = counts.get(rewrite.edit, Record())
        made[result] = Advice(
            rewrite=rewrite,
            evidence=evidence(run, rewrite),
            saved_cycles=saved(run, rewrite),
            confidence=record.confidence * 0.5 ** len(lost),
            record=record,
            lost_before=lost,
        )
    alone = sorted(made, key=lambda one: (-made[one].worth, made[one].rewrite.edit.value, made[one].rewrite.subject))
    if all(map(tried.is_no_faster, alone)):
        near = [made[one] for one in sorted(alone, key=tried.loss) if tried.lost_little(one)]
        for pair in tuple(_pairs(file, run, near, made.values())):
            made.setdefault(program(pair.rewrite.after), pair)
    every = [*alone, *(result for result in made if result not in alone)]
    return tuple(made[result] for result in every if result not in judged)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What is known of versions of a file, by ``program``: judged under these conditions, or modelled."""

    judged: Mapping[str, Attempt]
    known: Mapping[str, Prediction]
    base: Prediction | None
    """Of the file as it is."""

    def loss(self, result: str) -> float:
        """Share of the latency that a version lost; infinity where it has none, or does not count as slower."""
        if (attempt := self.judged.get(result)) is not None:
            return -attempt.gain if attempt.gain is not None and not attempt.kept else math.inf
        one = self.known.get(result)
        if one is None or self.base is None or one.score is None or self.base.score is None:
            return math.inf
        is_same = bool(one.program) and one.program == self.base.program
        worse = fate(one, self.base)[0] in (Fate.SLOWER, Fate.SAME) and not is_same
        return one.score.latency_ms / self.base.score.latency_ms - 1 if worse else math.inf

    def lost_little(self, result: str) -> bool:
        """Whether a version lost so little that another edit with it may win."""
        return self.loss(result) < _NEAR

    def is_no_faster(self, result: str) -> bool:
        """Whether it is known that a version is not faster than the file as it is."""
        if result in self.judged:
            return True
        one = self.known.get(result)
        return one is not None and self.base is not None and fate(one, self.base)[0] is not Fate.FASTER

    def overflowed(self, result: str) -> bool:
        attempt, one = self.judged.get(result), self.known.get(result)
        status = attempt.status if attempt is not None else one.status.name if one is not None else ""
        return status == Status.VMEM_OVERFLOW.name


def rewrites(file: File) -> tuple[Rewrite, ...]:
    """Every edit whose pattern is in the file."""
    alone = [kernel for kernel in kernels(file) if kernel.alone]
    return (
        *tiles.rewrites(file),
        *joined.rewrites(file),
        *(one for kernel in alone for one in _of_kernel(kernel)),
    )


def _of_kernel(kernel: Kernel) -> Iterator[Rewrite]:
    """By every pattern of one kernel; stages are made of what others are found to make."""
    found = [one for pattern in PATTERNS if kernel.refs or pattern in _WITHOUT_REFS for one in pattern(kernel)]
    yield from found
    if kernel.refs:
        yield from staggered.rewrites(kernel, found)


def program(source: bytes) -> str:
    """Equal for versions that differ in comments and layout alone; those that are no Python differ by their bytes."""
    try:
        text = ast.dump(tree(source)).encode()
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


def _pairs(file: File, run: Run, near: Sequence[Advice], alone: Iterable[Advice]) -> Iterator[Advice]:
    """Two edits, the second made on top of the first: each lost little alone, or the second needs the first."""
    by_kind, here = {_kind(one.rewrite): one for one in near}, {_kind(one.rewrite) for one in alone}
    for first in near[:_MOST_NEAR]:
        for rewrite in rewrites(File.of(first.rewrite.after, file.name)):
            second = by_kind.get(_kind(rewrite))
            if second is first or (second is None and _kind(rewrite) in here):
                continue
            parts = [first, second] if second else [first]
            both = [(one.edit.value, in_words(one.point) or one.subject) for one in (first.rewrite, rewrite)]
            names = "; ".join(" ".join(words) for words in both)
            lines = tuple(sorted({line for one in parts for line in one.rewrite.lines}))
            yield Advice(
                rewrite=Rewrite(edit=Edit.PAIR, after=rewrite.after, lines=lines, subject=names),
                evidence=tuple(found for one in parts for found in one.evidence),
                saved_cycles=min(sum(one.saved_cycles for one in parts), run.most),
                confidence=math.prod(one.confidence for one in parts),
                record=Record(),
            )


def _kind(rewrite: Rewrite) -> tuple[Edit, str]:
    return rewrite.edit, rewrite.subject


def _with_room(file: File, tried: Tried) -> Iterator[Rewrite]:
    """Every edit but larger blocks of a side that overflowed VMEM; of those that did the same under a higher limit."""
    every = rewrites(file)
    full = [one for one in every if one.edit is Edit.LARGER and tried.overflowed(program(one.after))]
    for rewrite in every:
        if any(one.subject == rewrite.subject and one.factor < rewrite.factor for one in full):
            continue
        yield rewrite
        if rewrite in full and (higher := tiles.raised(rewrite, file.name)) is not None:
            yield higher


def _lost(rewrite: Rewrite, past: Sequence[Followed]) -> tuple[str, ...]:
    """The attempts at the same edit that were not kept, after the last one that was."""
    lost: list[str] = []
    for attempt, other in past:
        if attempt.here and _kind(other) == _kind(rewrite) and other.point == rewrite.point:
            lost = [] if attempt.kept else [*lost, attempt.id]
    return tuple(lost)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A modelled run of one kernel file."""

    timeline: Timeline
    file: str
    """What the kernel file is called in it."""

    @cached_property
    def _lines(self) -> dict[int, LineCost]:
        return {
            cost.place.line: cost
            for cost in self.timeline.blame.lines
            if isinstance(cost.place, SourceLine) and cost.place.file == self.file
        }

    @cached_property
    def most(self) -> int:
        """What can be saved at all: all but the products on the busiest matrix unit."""
        bound = (loss.ceiling_cycles for loss in self.timeline.blame.losses if isinstance(loss, MatrixBound))
        return max(0, self.timeline.cycles - max(bound, default=0))

    @cached_property
    def pipeline(self) -> int:
        """Scalar code around the kernels' steps."""
        every = (one for one in self.timeline.blame.lines if one.place is Code.PIPELINE)
        return sum(one.cycles - one.wait_cycles for one in every)

    @cached_property
    def waited(self) -> int:
        return sum(one.wait_cycles for one in self.timeline.blame.lines)

    @cached_property
    def ends(self) -> int:
        """The first and last steps of the kernels, in which the pipeline is filled and drained."""
        return sum(one.cycles for one in self.timeline.blame.regions if one.name in ("first", "last"))

    def loss(self, kind: LossKind) -> Loss | None:
        return next((one for one in self.timeline.blame.losses if one.kind is kind), None)

    def units(self, lines: Iterable[int], *names: str) -> int:
        """Cycles that lines issue on units, and wait for them."""
        costs = [self._lines[line] for line in lines if line in self._lines]
        return sum(one.issue_cycles.get(name, 0) + one.stall_cycles.get(name, 0) for one in costs for name in names)

    def of_lines(self, lines: Sequence[int]) -> Evidence:
        """What source lines cost."""
        costs = {line: self._lines[line].cycles for line in lines if line in self._lines}
        return self._evidence(None, sum(costs.values()), max(costs, key=lambda line: costs[line], default=None))

    def of_loss(self, kind: LossKind) -> Evidence | None:
        """A loss, with the source line that most of it is on, if it is on one."""
        match loss := self.loss(kind):
            case Waits() | Stalls() | Spills() | IdleSteps():
                place = loss.place if isinstance(loss, Waits) else None
                if isinstance(loss, Stalls) and loss.units:
                    place = loss.units[0].place
                line = place.line if isinstance(place, SourceLine) and place.file == self.file else None
                return self._evidence(kind, loss.cycles, line)
        return None

    def _evidence(self, loss: LossKind | None, cycles: int, line: int | None) -> Evidence:
        return Evidence(loss=loss, cycles=cycles, share=cycles / max(1, self.timeline.cycles), line=line)


def saved(run: Run, rewrite: Rewrite) -> int:
    """Cycles that an edit is about, as a guess; 0 where it should cost more than it saves."""
    return max(0, min(int(_saved(run, rewrite)), run.most))


def evidence(run: Run, rewrite: Rewrite) -> tuple[Evidence, ...]:
    """What speaks for an edit, most of it first."""
    about = [one for kind in _ABOUT.get(rewrite.edit, ()) if (one := run.of_loss(kind)) is not None]
    if rewrite.lines:
        about.append(run.of_lines(rewrite.lines))
    return tuple(sorted((one for one in about if one.cycles), key=lambda one: -one.cycles))


_ABOUT = {
    Edit.LARGER: (LossKind.WAITS, LossKind.STALLS, LossKind.IDLE_STEPS),
    Edit.VMEM: (LossKind.WAITS, LossKind.STALLS, LossKind.IDLE_STEPS),
    Edit.SMALLER: (LossKind.SPILLS,),
    Edit.STRIPS: (LossKind.SPILLS, LossKind.STALLS),
    Edit.PART: (LossKind.STALLS,),
    Edit.TRIANGLE: (LossKind.STALLS,),
    Edit.STAGGER: (LossKind.STALLS,),
    Edit.TURNS: (LossKind.STALLS,),
    Edit.FETCH: (LossKind.WAITS,),
    Edit.SWAP: (LossKind.WAITS,),
    Edit.JOIN: (LossKind.WAITS, LossKind.STALLS),
    Edit.ABREAST: (LossKind.STALLS,),
    Edit.GROUP: (LossKind.STALLS, LossKind.WAITS),
    Edit.PAGES: (LossKind.STALLS, LossKind.WAITS),
    Edit.RESIDENT: (LossKind.IDLE_STEPS, LossKind.WAITS),
    Edit.SKIP: (LossKind.STALLS,),
}
_WHOLLY = {
    Edit.MASK: ("VALU",),
    Edit.SCALE: ("VALU",),
    Edit.NARROW: ("VALU",),
    Edit.WIDE: ("XLU",),
    Edit.LANES: ("XLU", "VPOP"),
}
"""Units whose work on its lines an edit takes away."""
_PARTLY = {
    Edit.BASE_2: ("VALU", "EUP"),
    Edit.DIVIDE: ("VALU", "EUP"),
    Edit.NARROW: ("MXU",),
    Edit.WIDE: ("VALU", "VLOAD", "VSTORE"),
}
"""Units whose work on its lines it makes less."""


def _saved(run: Run, rewrite: Rewrite) -> float:
    spills, stalls, idle = (
        loss.cycles if (loss := run.loss(kind)) is not None else 0
        for kind in (LossKind.SPILLS, LossKind.STALLS, LossKind.IDLE_STEPS)
    )
    steps = run.pipeline + run.waited
    less = 1 - 1 / rewrite.factor if rewrite.factor > 1 else 0.0
    match rewrite.edit:
        case Edit.LARGER | Edit.VMEM:
            return _net(less * (steps + stalls), (rewrite.factor - 1) * (run.ends + spills / 2))
        case Edit.SMALLER:
            return _net((spills + run.ends) / 2, steps)
        case Edit.STRIPS | Edit.PART | Edit.TRIANGLE | Edit.STAGGER | Edit.TURNS | Edit.ABREAST:
            return (spills + stalls) / 2
        case Edit.RESIDENT | Edit.GROUP | Edit.PAGES | Edit.SWAP:
            return max(idle, less * steps, run.waited / 2)
        case Edit.SKIP | Edit.JOIN | Edit.FETCH | Edit.TRANSPOSE | Edit.FUSE:
            return run.timeline.cycles / 2
        case Edit.UNROLL:
            return less * run.units(rewrite.lines, "SALU", "branch")
    away = run.units(rewrite.lines, *_WHOLLY.get(rewrite.edit, ()))
    return away + _SPARED * run.units(rewrite.lines, *_PARTLY.get(rewrite.edit, ()))


def _net(saves: float, costs: float) -> float:
    """What an edit saves less what it makes worse; a little where that is more, because neither is known well."""
    return max(saves - costs, _DOUBTFUL * saves)
