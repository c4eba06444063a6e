"""A search: propose, judge, record, until it ends. Interrupted, the same call goes on from the ledger.

Trials come in batches. What a batch proposes follows from the results of those before it, and results are looked up in
the ledger first, by the kernel's bytes. So a search that was killed repeats its own course without judging anything
again, and continues it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ratchet.kernelfile.knobs import in_words, with_constants
from ratchet.search.candidates import Candidate
from ratchet.search.propose import Known, propose
from ratchet.search.space import Observation, Space, since_best
from ratchet.values import Decision, Point, Row
from ratchet.values.status import Status

PATIENCE_BY_KNOB = 10
"""So many trials for each knob without a better one are enough, where nothing else is asked for."""


class Ending(Enum):
    """Why a search ended."""

    BUDGET = "the budget of trials is used up"
    TIME = "the time is over"
    SPACE = "nothing is left to try"
    PATIENCE = "no better point for long"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a search may go on."""

    trials: int
    """At most so many points, those of an interrupted run counted."""
    seconds: float | None = None
    """Of this run; None for as long as it takes."""
    patience: int = 0
    """Trials without a better one after which it ends; 0 for no such rule."""


def ending(limits: Limits, observations: Sequence[Observation], seconds: float) -> Ending | None:
    """Why the search ends here, after ``seconds`` of this run; None where it goes on."""
    if len(observations) >= limits.trials:
        return Ending.BUDGET
    if limits.seconds is not None and seconds >= limits.seconds:
        return Ending.TIME
    if limits.patience and any(one.passed for one in observations) and since_best(observations) >= limits.patience:
        return Ending.PATIENCE
    return None


BATCH = 4
"""Trials between two proposals: two for each lane, so that none waits long for the other."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a search came to."""

    observations: tuple[Observation, ...]
    """In order, those of earlier runs of the same search first."""
    ending: Ending
    left_out: int
    """Points that were not tried, because they need no less VMEM than one that overflowed."""
    seconds: float
    """Of this run."""


class Course(Protocol):
    """Which versions of a file are tried, by what came of those before: the same trials give the same proposals."""

    def propose(self, observations: tuple[Observation, ...], count: int) -> Sequence[Candidate]:
        """Up to ``count`` that were not tried yet; none where nothing is left."""
        ...

    def left_out(self, observations: tuple[Observation, ...]) -> int:
        """How many are not worth a trial."""
        ...


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Points of a space, chosen by one of ``STRATEGIES``."""

    source: bytes
    """HEAD's kernel as the search starts, or any other point of it."""
    name: str
    """What the file is called."""
    space: Space
    how: str
    start: Point
    study: str

    def propose(self, observations: tuple[Observation, ...], count: int) -> Sequence[Candidate]:
        return [self._candidate(point) for point in propose(self.how, self._known(observations), count)]

    def left_out(self, observations: tuple[Observation, ...]) -> int:
        return self._known(observations).left_out()

    def _known(self, observations: tuple[Observation, ...]) -> Known:
        return Known(space=self.space, start=self.start, observations=observations)

    def _candidate(self, point: Point) -> Candidate:
        message = f"search: {in_words(point)}\n\nA trial of the {self.how} search {self.study}."
        return Candidate(text=with_constants(self.source, self.name, point), message=message, point=point)


@dataclass(frozen=True, kw_only=True)
class Search:
    """One search of a kernel file."""

    course: Course
    limits: Limits
    rows: Callable[[Sequence[Candidate]], Sequence[Row]]
    """``Bench.rows``."""
    record: Callable[[tuple[Observation, ...]], None] = lambda _all: None
    """Called with all trials, whenever more were proposed or came back."""
    say: Callable[[str], None] = lambda _line: None
    batch: int = BATCH
    """Trials between two proposals. Another number is another course: later ones are chosen knowing less or more."""
    clock: Callable[[], float] = time.monotonic

    def run(self) -> Result:
        """Raises:
        Refusal: as ``Bench.rows``.
        """
        began = self.clock()
        observations: tuple[Observation, ...] = ()
        while True:
            end = ending(self.limits, observations, self.clock() - began)
            count = min(self.batch, self.limits.trials - len(observations))
            candidates = () if end else self.course.propose(observations, count)
            if not candidates:
                return Result(
                    observations=observations,
                    ending=end or Ending.SPACE,
                    left_out=self.course.left_out(observations),
                    seconds=self.clock() - began,
                )
            self.say(f"trials {len(observations) + 1} to {len(observations) + len(candidates)}")
            self.record(observations)  # what is tried next, before HEAD's kernel may become one of them
            rows = self.rows(candidates)
            observations += tuple(result_of(one.point, row) for one, row in zip(candidates, rows, strict=True))
            self.record(observations)


def result_of(point: Point, row: Row) -> Observation:
    """What a row says of a point."""
    return Observation(
        point=point,
        status=Status[row.status],
        latency_ms=float(row.median_ms) if row.median_ms else None,
        vmem_bytes=int(row.vmem_bytes) if row.vmem_bytes else None,
        id=row.id,
        kept=row.decision == Decision.KEPT,
        reason=row.reason,
    )
