"""Which units are in use along a kernel's program: frozen values, a part of :class:`ratchet.values.Timeline`.

Cycles are those of the TensorCore clock, all executions together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ratchet.values.place import Place

TURN_END, DMA, NOTHING = "end of a turn", "DMA", ""
"""What may keep a unit from more besides a slot that is full: a branch, waiting, and nothing that can be named."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What keeps a unit from doing more in part of a kernel."""

    unit: str
    """A unit as in :class:`ratchet.values.blame.LineCost`, or ``TURN_END``, ``DMA``, ``NOTHING``."""
    empty: bool
    """Whether empty bundles wait for the unit; else every slot of it is full."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Bundles one behind the other that are alike."""

    begin: int
    end: int
    """First and last address (exclusive)."""
    executions: int
    """Of the bundle that is executed most."""
    bundles: int
    """Executed, empty ones included."""
    empty: int
    wait_cycles: int
    """Waiting for DMAs and semaphores there."""
    busy: int
    """Cycles for which the kernel's ``unit`` is in use."""
    products: int
    """Executed matrix products."""
    weights: int
    """Executed pushes of weights to matrix units."""
    issues: Mapping[str, int]
    """Executed instructions by issue slot; spills and fills are stores and loads, and apart besides."""
    used: Mapping[str, int]
    """Cycles for which each of them is in use: instructions over slots of a bundle, and for matrix and cross-lane units
    how long those are busy, averaged over the units."""
    waits: Mapping[str, int]
    """Empty bundles, by the unit that is waited for; those of less than a whole one are left out."""
    limit: Limit
    """What keeps ``unit`` from more, where most of what it loses is lost."""
    turn_end: bool
    """Whether it is at the beginning or end of straight code, where ``unit`` runs empty or is not in use again yet."""
    lines: tuple[Place, ...]
    """The two that issue most, at most."""

    @property
    def cycles(self) -> int:
        return self.bundles + self.wait_cycles


@dataclass(frozen=True, kw_only=True)
class Limited:
    """The part of a kernel that has one limit."""

    limit: Limit
    cycles: int
    busy: int
    """As of a stretch."""
    place: Place | None
    """The line that issues most there; None where nothing issues."""


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Ends of the turns of one loop: what lies around its branches, where ``unit`` runs empty and begins again.

    The compiler schedules nothing across a branch.
    """

    place: Place
    """The line that the loop is at; the compiler's pipeline for the loop over grid steps."""
    begin: int
    end: int
    """First and last address (exclusive) of the loop."""
    turns: int
    cycles: int
    """Of the bundles there."""


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """One kernel. Its stretches hold every bundle that it executes once, and so do its limits."""

    kernel: str
    """Name of the kernel's dump."""
    unit: str
    """``MXU``, or, in a kernel without matrix products, the slot that is fullest."""
    cycles: int
    """Of its bundles and waits."""
    stretches: tuple[Stretch, ...]
    """In the order of the program."""
    limits: tuple[Limited, ...]
    """Largest first."""
    turns: tuple[Turns, ...]
    """Costliest first; with those of no loop, which are executed once, these are the ``TURN_END`` of ``limits``."""

    @property
    def busy(self) -> int:
        """Of the ``unit``."""
        return sum(one.busy for one in self.stretches)

    @property
    def turn_cycles(self) -> int:
        """That ends of turns take."""
        return sum(one.cycles for one in self.limits if one.limit.unit == TURN_END)
