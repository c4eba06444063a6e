"""What a target costs before and after something changed: its source, or the compiler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from ratchet.values.status import Status


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What one version of a target costs on one chip, modelled."""

    status: Status
    """``PASS`` where everything is known; else what was refused, and only what is known is there. ``UNSETTLED`` where
    a process was killed or ran out of time or memory."""
    reason: str = ""
    compiler: str = ""
    latency_ms: float | None = None
    vmem_bytes: int = 0
    """Of the kernel that needs most."""
    vmem_limit_bytes: int = 0
    spills: int = 0
    """Stores and loads of vector registers, as instructions."""
    copies: int = 0
    """Those that the compiler inserted, prefetches left out."""
    copy_bytes: int = 0


class ChangeKind(Enum):
    """What became of a target."""

    SLOWER = "slower"
    BROKEN = "broken"
    """It compiled and could be modelled before."""
    UNSETTLED = "not settled"
    """A process was killed or ran out of time or memory: it may be any of the others."""
    FASTER = "faster"
    FIXED = "fixed"
    NEW = "new"
    SAME = "same"
    """Its latency is within the allowed share."""
    UNKNOWN = "unknown"
    """It cannot be compiled or modelled, before as after."""


WORSE = (ChangeKind.SLOWER, ChangeKind.BROKEN)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One target on one chip, before and after."""

    target: str
    chip: str
    before: Costs | None
    """None where there was no such target."""
    after: Costs
    allowed_share: float
    """Share by which the latency may grow."""

    @property
    def kind(self) -> ChangeKind:
        if any(one is not None and one.status is Status.UNSETTLED for one in (self.before, self.after)):
            return ChangeKind.UNSETTLED
        now = self.after.status is Status.PASS
        if self.before is None:
            return ChangeKind.NEW if now else ChangeKind.BROKEN
        if self.before.status is not Status.PASS:
            return ChangeKind.FIXED if now else ChangeKind.UNKNOWN
        if not now:
            return ChangeKind.BROKEN
        old, new = self.before.latency_ms, self.after.latency_ms
        if old is None or new is None:
            return ChangeKind.UNKNOWN
        if new > old * (1 + self.allowed_share):
            return ChangeKind.SLOWER
        return ChangeKind.FASTER if new * (1 + self.allowed_share) < old else ChangeKind.SAME


def outcome(kinds: Iterable[ChangeKind]) -> Status:
    """Of all changes together: a regression first, then what is not settled."""
    found = set(kinds)
    if found.intersection(WORSE):
        return Status.REGRESSED
    return Status.UNSETTLED if ChangeKind.UNSETTLED in found else Status.PASS
