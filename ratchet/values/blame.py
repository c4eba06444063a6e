"""Where the cycles of a modelled run go: frozen values, a part of :class:`ratchet.values.Timeline`.

Everything is in cycles of the TensorCore clock and sums exactly: the cycles of all lines are those of the run, those of
a region's lines are the region's, and a line's parts (issuing, stalled, waiting, delayed) are the line's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ratchet.values.loss import Loss
from ratchet.values.place import Place

RESULTS = "MXU results"
"""What an empty bundle waits for: what takes a result waits until the product has passed through its matrix unit."""
WEIGHTS = "MXU weights"
"""A product waits for the weights that it multiplies by, or weights for the products before them."""
STORES = "stores"
"""A load waits for a store to the same memory."""
BRANCH = "branch"
"""Empty bundles in the delay slots of a branch."""
OTHER = "other"
"""Empty bundles of which it is not known what they wait for."""
OUTSIDE = "outside"
"""Unit of a form that is bound by what is beside its kernels."""

STALLS, WAITS, LINKS = "stalls", "waits", "links"
"""What a region may be bound by besides a unit: empty bundles, and waiting: for its own chip's DMAs and semaphores, or
for traffic between chips."""


@dataclass(frozen=True, kw_only=True)
class LineCost:
    """What one source line costs, or one thing that has no line."""

    place: Place
    cycles: int
    issue_cycles: Mapping[str, int]
    """Bundles that issue, shared out, by unit: MXU XLU VALU VPOP EUP VLOAD VSTORE SALU, and SPILL and FILL apart."""
    stall_cycles: Mapping[str, int]
    """Empty bundles that wait for this line, by what is waited for: a unit, or one of the names above."""
    wait_cycles: int
    """Waiting for DMAs and semaphores."""
    delay_cycles: int
    """Delays that the compiler asks for by an instruction."""
    issues: Mapping[str, int]
    """Executed instructions by issue slot."""
    empty_slots: int
    """Issue slots left empty in this line's cycles."""
    spill_stores: int
    spill_loads: int
    link_wait_cycles: int = 0
    """Part of ``wait_cycles``: for what another chip sends, or for what is on its way to one."""


@dataclass(frozen=True, kw_only=True)
class RegionCost:
    """A part of the run: the first, steady and last grid steps of a kernel, or all that is outside kernels."""

    kernel: str
    """Name of the kernel's dump; ``""`` for what is outside kernels."""
    name: str
    """``first``, ``steady``, ``last``; ``whole`` for a kernel without a loop or with few steps; ``outside``."""
    steps: int
    """Iterations of the pipeline loop, with those that only fill or drain it; 0 without a loop."""
    cycles: int
    stall_cycles: int
    wait_cycles: int
    busy_cycles: Mapping[str, int]
    """Least time for which each resource is needed: the busiest matrix and cross-lane unit, instructions over slots
    for the others, and ``HBM`` for the transfers issued here."""
    critical: str
    """What takes longest of: each unit, ``STALLS``, ``WAITS``, ``LINKS``; ``HBM`` only where it is busy for more than
    half of the time, because transfers go on beside everything else; ``""`` outside kernels."""
    lines: tuple[LineCost, ...]
    """Costliest first."""
    link_wait_cycles: int = 0
    """Part of ``wait_cycles``, as of a line."""


@dataclass(frozen=True, kw_only=True)
class StepKind:
    """Grid steps that took the same way through the program."""

    kernel: str
    """Name of the kernel's dump; ``""`` for rare kinds of all kernels together."""
    steps: int
    cycles: int
    """All together."""
    least_cycles: int
    most_cycles: int
    stall_cycles: int
    wait_cycles: int
    mxu_cycles: int
    """Cycles in which the busiest matrix unit is occupied."""


@dataclass(frozen=True, kw_only=True)
class Blame:
    """Every cycle of a run, by source line, by region and by kind of grid step."""

    lines: tuple[LineCost, ...]
    """Over all regions, costliest first."""
    regions: tuple[RegionCost, ...]
    """In order of time, kernel by kernel."""
    steps: tuple[StepKind, ...]
    """Costliest first; rare ones are put together in a last one without a ``kernel``."""
    losses: tuple[Loss, ...]
    """Largest first; ``NothingLeft`` before all of them, what bounds the kernels last."""
