"""What costs time in a modelled run, as numbers. The sentences are made in ``view/``.

Shares are fractions of 1. A unit is named as in :class:`ratchet.values.blame.LineCost`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from ratchet.values.place import Place
from ratchet.values.program import Copy


class LossKind(Enum):
    """The closed set of losses."""

    WAITS = "waits"
    STALLS = "stalls"
    SPILLS = "spills"
    IDLE_STEPS = "idle steps"
    CROWDED_UNIT = "crowded unit"
    OUTSIDE = "outside"
    LINKS = "links"
    BOUND = "bound"
    FORM = "form"
    NOTHING_LEFT = "nothing left"


class WaitCause(Enum):
    """Why DMAs are waited for."""

    BANDWIDTH = "bandwidth"
    """HBM or the links are busy nearly all the time."""
    LATENCY = "latency"
    """They are not: each transfer is waited for on its own."""


@dataclass(frozen=True, kw_only=True)
class _Ceiling:
    cycles: int
    """What removing the loss would save at best: the run's cycles less ``ceiling_cycles``."""
    ceiling_cycles: int
    """The run at best if this alone were gone: never less than what HBM, the links, the matrix units or the store slot
    need."""


@dataclass(frozen=True, kw_only=True)
class Waits(_Ceiling):
    """Kernels wait for DMAs."""

    kind: ClassVar = LossKind.WAITS
    wait_cycles: int
    place: Place
    """Where most of it is."""
    hbm_busy_share: float
    """Share of the kernels' cycles in which HBM is busy."""
    cause: WaitCause
    first_cycles: int = 0
    """Part of ``wait_cycles``: in the kernels' first grid step, whose copies nothing hides."""
    last_cycles: int = 0
    """Part of ``wait_cycles``: from the last grid step on, for results on their way out."""


@dataclass(frozen=True, kw_only=True)
class UnitStall:
    """Part of the empty bundles: those that wait for one unit."""

    unit: str
    cycles: int
    place: Place
    """The line that most of them wait for."""


@dataclass(frozen=True, kw_only=True)
class Stalls(_Ceiling):
    """Kernels issue empty bundles, because results are not there yet."""

    kind: ClassVar = LossKind.STALLS
    stall_cycles: int
    units: tuple[UnitStall, ...]
    """All that they wait for that costs a line, largest first."""


@dataclass(frozen=True, kw_only=True)
class Spills(_Ceiling):
    """Kernels store vector registers to VMEM and load them again, because too many are alive."""

    kind: ClassVar = LossKind.SPILLS
    stores: int
    loads: int
    store_slot_share: float
    """Share of the kernels' cycles in which the store slot is used."""
    store_slot_share_without: float
    """The same without the spills."""
    next_unit: str
    """What would be busiest without the spills: a unit, or ``HBM``."""
    next_unit_share: float
    """Share of the kernels' cycles for which it is needed."""


@dataclass(frozen=True, kw_only=True)
class IdleSteps(_Ceiling):
    """Grid steps of a kernel with matrix products that do none."""

    kind: ClassVar = LossKind.IDLE_STEPS
    steps: int
    of_steps: int
    wait_share: float
    """Share of their cycles that waits for DMAs."""


@dataclass(frozen=True, kw_only=True)
class CrowdedUnit(_Ceiling):
    """A unit that does no matrix products has no free slot for a good part of the time."""

    kind: ClassVar = LossKind.CROWDED_UNIT
    unit: str
    full_share: float
    """Of the kernels' cycles, those in stretches of code that leave it hardly a free slot."""
    busy_share: float
    """Of the kernels' cycles."""
    place: Place
    """What uses it most."""
    without_spills: bool
    """Whether ``busy_share`` leaves spills out: they are a loss of their own."""


@dataclass(frozen=True, kw_only=True)
class Outside(_Ceiling):
    """Something outside the kernels takes time."""

    kind: ClassVar = LossKind.OUTSIDE
    place: Place
    executions: int
    waiting: bool
    """Whether all of it is waiting."""
    copy: Copy | None = None
    """What is copied, where it is a copy."""


@dataclass(frozen=True, kw_only=True)
class LinkWaits(_Ceiling):
    """A chip of a slice waits for traffic between chips."""

    kind: ClassVar = LossKind.LINKS
    wait_cycles: int
    busiest_link_share: float
    """Share of the run in which the busiest link carries bytes."""
    cause: WaitCause


@dataclass(frozen=True, kw_only=True)
class MatrixBound(_Ceiling):
    """What no edit of the schedule gets below: the products on the busiest matrix unit. No loss, so it comes last."""

    kind: ClassVar = LossKind.BOUND


@dataclass(frozen=True, kw_only=True)
class FormBound(_Ceiling):
    """What the kernels need for the work that they really do, spills and all, were every unit fed without a gap: for
    each region the unit that is needed longest. No loss, so it comes last."""

    kind: ClassVar = LossKind.FORM
    unit: str
    """What is needed longest: a unit, ``HBM``, ``links``, or ``outside`` for the operations beside the kernels."""


@dataclass(frozen=True, kw_only=True)
class NothingLeft(_Ceiling):
    """The run takes hardly longer than one resource needs, or no loss is worth a line. Comes first where it is true."""

    kind: ClassVar = LossKind.NOTHING_LEFT
    unit: str
    """What is needed longest: ``HBM``, ``MXU``, ``VSTORE`` or ``links``, for ``ceiling_cycles``."""
    saturated: bool
    """Whether the run takes hardly longer than that; else there is room, and nothing that costs a line is in it."""


Loss = Waits | Stalls | Spills | IdleSteps | CrowdedUnit | Outside | LinkWaits | MatrixBound | FormBound | NothingLeft

Key = tuple[LossKind, str, Place | None]
"""Losses with the same one are the same suggestion: the kind, the unit of a crowded one, the op outside of kernels."""


@dataclass(frozen=True, kw_only=True)
class Refuted:
    """The newest experiment that removed a loss and was no faster."""

    id: str
    before_cycles: int
    """What removing the loss would have saved at best, in the incumbent."""
    after_cycles: int
    """The same in the experiment."""


def key_of(loss: Loss) -> Key:
    """What makes two losses of different programs the same suggestion."""
    match loss:
        case CrowdedUnit():
            return loss.kind, loss.unit, None
        case Outside():
            return loss.kind, "", loss.place
    return loss.kind, "", None
