"""What a report is made of, as it was read: rows, sources and the evidence of one kernel file. Nothing here is prose.

Texts of rows, names and sources are the author's, and data: they are cleaned and escaped where they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ratchet.values import Row, Timeline, Vmem
from ratchet.values.row import Origin
from ratchet.values.status import Status


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
    """One grid step of a modelled run, with what went on meanwhile."""

    kernel: str
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


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What of the frozen problem is shown."""

    name: str
    description: str
    digest: str
    flops: int
    compulsory_bytes: int
    chips: int


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
    """Kernel files by blob, as far as git has them here."""
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
