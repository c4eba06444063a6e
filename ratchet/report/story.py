"""What a report is made of, as it was read, and what happened to a kernel: which experiment gained what. Pure.

Latencies are only related where both were judged under the same conditions. What was modelled and what was measured
are tracks of their own. Texts of rows, names and sources are the author's, and data: they are cleaned and escaped where
they are shown.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ratchet.exam.problem.problem import Problem
from ratchet.loop.decide import conditions_of
from ratchet.values import MEASURED, Conditions, Decision, Row, Timeline, Vmem
from ratchet.values.row import Origin
from ratchet.values.status import CORRECT, Status
from ratchet.view.ledger import entries
from ratchet.view.text import number

_CORRECT = {status.name for status in CORRECT}
_CONTEXT = 3


# --- what was read ---


@dataclass(frozen=True, kw_only=True)
class StepBar:
    """Something that lasts on a lane of a grid step. Times in microseconds from the beginning of the run."""

    lane: str
    """``MXU`` and other units, ``stalls``, ``DMA in``, ``DMA out``, ``DMA wait``, … as in the trace."""
    start_us: float
    end_us: float
    share: float = 1.0
    """Of a unit: for how much of the step it is busy. 1 for copies and waits."""
    bytes: int = 0
    """Of a copy."""
    detail: str = ""
    """What a wait is for, in the trace's words."""


@dataclass(frozen=True, kw_only=True)
class GridStep:
    """One grid step of a modelled run, with what ran during it."""

    number: int
    of_steps: int
    start_us: float
    end_us: float
    bars: tuple[StepBar, ...]


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One set of inputs that the kernel's values were checked on."""

    name: str
    status: str
    worst: float
    """Largest error, as a multiple of its allowance: up to 1 passes."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the judge left of one experiment on this disk. Empty where it is gone, or was never there."""

    id: str
    timeline: Timeline | None = None
    vmem: tuple[Vmem, ...] = ()
    """Of the kernels of the program."""
    step: GridStep | None = None
    instances: tuple[Instance, ...] = ()
    is_new: bool = False
    """Modelled for this page, in place of what the experiment left elsewhere; no values were executed."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """Everything that is known here of one kernel file."""

    repository: str
    """Name of the folder."""
    kernel: str
    """Path of the kernel file, as the ledger has it."""
    rows: tuple[Row, ...]
    """Its rows, oldest first."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Rows of each other kernel file of this ledger."""
    head: str = ""
    """HEAD's commit; ``""`` where there is none."""
    head_blob: str = ""
    """The kernel file's blob in HEAD; ``""`` where HEAD has none."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Those kernel files by blob that git has here."""
    problem: Problem | None = None
    evidence: Evidence | None = None
    """Of the current kernel."""
    origins: Mapping[Origin, int] = field(default_factory=dict)
    """How many of the rows are from where; empty where this machine has no key."""
    made: str = ""
    """When this was read: UTC, ``2026-01-31 12:00:00``."""
    under_way: str = ""
    """The message of the experiment that runs now, and since when; ``""`` where none does."""
    broken: tuple[Status, str] | None = None
    """Why there are no rows, where the ledger cannot be read."""


# --- what happened ---


class Outcome(StrEnum):
    """What became of an experiment."""

    KEPT = "kept"
    BASELINE = "baseline"
    """HEAD's own kernel was judged: nothing was changed."""
    REVERTED = "reverted"
    """Correct, but not kept."""
    FAILED = "failed"
    """It has no latency: it does not compile, is wrong, or could not be judged."""
    JUDGED = "judged"
    """The work tree was judged and git left alone."""


KEPT = (Outcome.KEPT, Outcome.BASELINE)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One row, with what it is compared with."""

    number: int
    """Counted from 1, over all rows of the kernel."""
    row: Row
    outcome: Outcome
    latency_ms: float | None
    floor_ms: float | None
    """The roofline's least time for this problem on this chip."""
    against: Row | None
    """The kernel that was in place, judged under the same conditions; None for a baseline, or where there is none."""
    times: float | None
    """How many times faster than ``against``: below 1 where it is slower. Measured: by the paired launches."""
    before: str
    """Blob of the kernel file that this one was made from; ``""`` where that is not known or the same."""
    again: int = 0
    """How many later rows only repeat this one."""

    @property
    def measured(self) -> bool:
        return self.row.evaluator in MEASURED

    @property
    def share(self) -> float | None:
        """Of the roofline that it reaches."""
        share = number(self.row.util_pct)
        return None if share is None else share / 100

    @property
    def ratio(self) -> float | None:
        """Measured over modelled latency, where both are known."""
        modelled = number(self.row.modelled_ms)
        return self.latency_ms / modelled if self.latency_ms and modelled else None

    @property
    def in_place(self) -> bool:
        """Whether its kernel was HEAD's from then on."""
        return self.outcome in KEPT


@dataclass(frozen=True, kw_only=True)
class Track:
    """The experiments on one kernel by one evaluator."""

    evaluator: str
    experiments: tuple[Experiment, ...]

    @property
    def current(self) -> Experiment | None:
        """The newest kernel that was kept, or judged as HEAD's own."""
        return next((one for one in reversed(self.experiments) if one.in_place and one.latency_ms), None)

    @property
    def first(self) -> Experiment | None:
        """The first that has a latency."""
        return next((one for one in self.experiments if one.latency_ms), None)

    @property
    def gains(self) -> tuple[Experiment, ...]:
        """Kept experiments that are compared with another, largest gain first."""
        kept = [one for one in self.experiments if one.outcome is Outcome.KEPT and one.times]
        return tuple(sorted(kept, key=lambda one: -(one.times or 0.0)))

    @property
    def factor(self) -> float:
        """Times faster than the first: the gains of all kept experiments together."""
        return math.prod(one.times or 1.0 for one in self.gains)

    @property
    def series(self) -> tuple[Conditions, ...]:
        """The conditions under which rows were judged, in order of time."""
        return tuple(dict.fromkeys(conditions_of(one.row) for one in self.experiments))


@dataclass(frozen=True, kw_only=True)
class Story:
    """All experiments on one kernel file."""

    material: Material
    tracks: tuple[Track, ...]
    """By evaluator; the one that judged last comes first."""

    @property
    def main(self) -> Track | None:
        return self.tracks[0] if self.tracks else None

    @property
    def current(self) -> Experiment | None:
        """The newest kernel in place of the main track."""
        return self.main.current if self.main else None

    @property
    def timeline(self) -> Timeline | None:
        """The current kernel's modelled run, where it is on this disk."""
        return self.material.evidence.timeline if self.material.evidence else None

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """Of all tracks, oldest first."""
        return tuple(sorted((one for track in self.tracks for one in track.experiments), key=lambda one: one.number))

    @property
    def unjudged(self) -> bool:
        """Whether HEAD has another kernel than the one that is shown as the current one."""
        head, current = self.material.head_blob, self.current
        return bool(current and head and head != current.row.kernel_blob)

    def count(self, outcome: str) -> int:
        """Experiments with this outcome."""
        return sum(one.outcome == outcome for one in self.experiments)


def story(material: Material) -> Story:
    """The rows of a kernel related to each other."""
    tracks: dict[str, list[Experiment]] = {}
    in_place = ""
    shown = [entry for entry in entries(material.rows) if not entry.repeats]
    for place, entry in enumerate(shown, start=1):
        row, outcome = entry.row, _outcome(entry.row)
        compared = outcome in (Outcome.KEPT, Outcome.REVERTED)
        made = Experiment(
            number=place,
            row=row,
            outcome=outcome,
            latency_ms=None if outcome is Outcome.FAILED else entry.latency_ms,
            floor_ms=_floor_ms(row),
            against=entry.before if compared else None,
            times=entry.faster if compared or row.evaluator in MEASURED else None,
            before=in_place if outcome is not Outcome.BASELINE and in_place != row.kernel_blob else "",
            again=entry.again,
        )
        tracks.setdefault(row.evaluator, []).append(made)
        in_place = row.kernel_blob if made.in_place else in_place
    newest_last = sorted(tracks, key=lambda evaluator: tracks[evaluator][-1].number)
    return Story(
        material=material,
        tracks=tuple(Track(evaluator=one, experiments=tuple(tracks[one])) for one in reversed(newest_last)),
    )


def _outcome(row: Row) -> Outcome:
    if row.status not in _CORRECT or not number(row.median_ms):
        return Outcome.FAILED
    known = {Decision.KEPT: Outcome.KEPT, Decision.BASELINE: Outcome.BASELINE, Decision.REVERTED: Outcome.REVERTED}
    return known.get(row.decision, Outcome.JUDGED)


def _floor_ms(row: Row) -> float | None:
    latency, share = number(row.median_ms), number(row.util_pct)
    return latency * share / 100 if latency and share else None


def diff_lines(experiment: Experiment, sources: Mapping[str, str], *, most: int) -> tuple[Sequence[str], int] | None:
    """The unified diff from the kernel before, without its heading: at most so many lines, and how many there are.

    None where one of the two files is not here.
    """
    old, new = sources.get(experiment.before), sources.get(experiment.row.kernel_blob)
    if not experiment.before or old is None or new is None:
        return None
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=_CONTEXT, lineterm=""))[2:]
    return lines[:most], len(lines)
