"""Whether one version of a program fits in the VMEM of one chip."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.values.status import Status
from ratchet.values.sweep import Point
from ratchet.values.vmem import Vmem


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One point on one chip."""

    point: Point
    chip: str
    status: Status
    """``PASS`` where it fits, ``VMEM_OVERFLOW`` where not; anything else is why it was not compiled in full."""
    reason: str = ""
    compiled: bool
    """False where it follows from another point: no point was compiled for it."""
    vmem: Vmem | None = None
    """Of the kernel that needs most, where it was compiled."""

    @property
    def is_empty(self) -> bool:
        """Whether its kernels use no VMEM at all, as one whose grid has no step: that says nothing of other points."""
        return self.vmem is not None and self.vmem.used_bytes == 0

    @property
    def fits(self) -> bool | None:
        """None where that is not known."""
        return {Status.PASS: True, Status.VMEM_OVERFLOW: False}.get(self.status)
