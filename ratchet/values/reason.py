"""What every cycle of a modelled run goes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ratchet.values.place import Place


class Use(Enum):
    """What a cycle goes to."""

    ISSUE = "issue"
    """Bundles of kernels that issue on a unit."""
    EMPTY = "empty"
    """Empty bundles of kernels, by what they wait for."""
    FIRST = "first blocks"
    """Waiting for DMAs in the first grid step of a kernel: nothing is there to be done beside it."""
    WAIT = "waiting"
    """Waiting for DMAs and semaphores in between."""
    LAST = "last results"
    """Waiting for DMAs from the last grid step of a kernel on."""
    LINKS = "links"
    """Waiting for traffic between chips."""
    DELAY = "delay"
    """Delays that the compiler asks for."""
    OUTSIDE = "outside"
    """Operations of XLA beside the kernels, their waits with them."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Cycles that go to one thing."""

    use: Use
    unit: str
    """Of ``ISSUE`` and ``EMPTY``, as in :class:`ratchet.values.blame.LineCost`; else ``""``."""
    cycles: int
    place: Place
    """Where most of it is; of ``OUTSIDE`` the operation."""
