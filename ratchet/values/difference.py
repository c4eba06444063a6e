"""Two experiments side by side. Cycles are those of the TensorCore clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ratchet.values.loss import Loss
from ratchet.values.occupancy import Limit
from ratchet.values.place import Place
from ratchet.values.row import Row
from ratchet.values.timeline import Timeline


@dataclass(frozen=True, kw_only=True)
class Side:
    """What is recorded of one experiment."""

    row: Row
    timeline: Timeline | None
    """Its modelled run without spans; None where nothing was modelled, or its evidence is gone."""
    source: str | None
    """Its kernel file; None where git does not have it here."""


class Part(Enum):
    """What a cycle is spent on. Every cycle of a run is in one part of one line."""

    ISSUE = "issue"
    """A bundle that issues, shared out to the units that it uses."""
    STALL = "stall"
    """An empty bundle that waits for a unit's result."""
    WAIT = "wait"
    """Waiting for DMAs and semaphores."""
    DELAY = "delay"
    """A delay that the compiler asks for."""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Cycles of one part on one unit, before and after."""

    part: Part
    unit: str
    """As in :class:`ratchet.values.blame.LineCost`; ``""`` for waits and delays."""
    before: int
    after: int
    place: Place | None
    """The line where most of it is, on the side where it is more; None where there is no change."""

    @property
    def change(self) -> int:
        return self.after - self.before


@dataclass(frozen=True, kw_only=True)
class LineChange:
    """Cycles of a line before and after. One of the places is None where the line is in one file only."""

    before: Place | None
    after: Place | None
    before_cycles: int
    after_cycles: int
    text: str
    """Of the newer line, or else of the older one; ``""`` for what is no line of the kernel file."""

    @property
    def change(self) -> int:
        return self.after_cycles - self.before_cycles


@dataclass(frozen=True, kw_only=True)
class LossChange:
    """A loss before and after. None where it is not among the losses."""

    before: Loss | None
    after: Loss | None

    @property
    def loss(self) -> Loss:
        """As it is after, or else as it was before."""
        loss = self.after or self.before
        assert loss is not None
        return loss

    @property
    def change(self) -> int:
        """Cycles that removing it would save at best: by how many more than before."""
        return (self.after.cycles if self.after else 0) - (self.before.cycles if self.before else 0)


@dataclass(frozen=True, kw_only=True)
class LimitChange:
    """Cycles of all kernels that have one limit, before and after."""

    limit: Limit
    before: int
    after: int

    @property
    def change(self) -> int:
        return self.after - self.before


@dataclass(frozen=True, kw_only=True)
class Spilled:
    """Executed stores and loads of vector registers that had no room."""

    stores: int
    loads: int


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two experiments side by side; from ``spent`` on nothing is there unless both runs are recorded."""

    before: Side
    after: Side
    conditions: tuple[str, ...]
    """Columns of the ledger, of those that must be equal before two latencies may be compared, that differ."""
    source: tuple[str, ...] | None
    """Lines of the unified diff, each with its first character; None where a file is not here."""
    spent: tuple[Spent, ...]
    """Where the difference in cycles is: the changes sum to it exactly, largest first."""
    lines: tuple[LineChange, ...]
    """Those whose cycles changed, largest change first."""
    losses: tuple[LossChange, ...]
    """Largest change first."""
    limits: tuple[LimitChange, ...]
    """What keeps the kernels' units from more, largest change first."""
    spilled: tuple[Spilled, Spilled] | None

    @property
    def modelled(self) -> bool:
        """Whether both runs are recorded."""
        return self.before.timeline is not None and self.after.timeline is not None
