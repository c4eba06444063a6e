"""What a search knows: the points that were tried, in order, and what came of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.values import Point
from ratchet.values.status import Status


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One point that has a row in the ledger."""

    point: Point
    status: Status
    """Of the row: ``UNCHECKED`` and ``NOT_BETTER`` have a latency, too."""
    latency_ms: float | None
    """None where the kernel was refused."""
    vmem_bytes: int | None = None
    """None where that is not known."""
    id: str = ""
    """The row's id."""
    kept: bool = False
    reason: str = ""
    """The row's, in words."""

    @property
    def passed(self) -> bool:
        """Whether it has a latency at all."""
        return self.latency_ms is not None


def best(tried: Sequence[Tried]) -> Tried | None:
    """The fastest; of equal ones the one tried first."""
    timed = [one for one in tried if one.latency_ms is not None]
    return min(timed, key=lambda one: one.latency_ms or 0.0, default=None)


def since_best(tried: Sequence[Tried]) -> int:
    """How many were tried after the fastest."""
    top = best(tried)
    return len(tried) - 1 - tried.index(top) if top else len(tried)
