"""What came of points: values for the knobs of a kernel, judged, compiled for their VMEM, or modelled for one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ratchet.values.artefact import ArraySpec
from ratchet.values.program import Vmem
from ratchet.values.status import Status
from ratchet.values.verdict import Band, Verdict

Literal = int | float | bool | str | None
Point = Mapping[str, Literal]
"""A value for every knob, by name. Empty: the file as it is."""


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What came of one version of a kernel file."""

    point: Point
    verdict: Verdict
    """``UNCHECKED`` where it was modelled, ``PASS`` where its values were checked, too."""
    seconds: float


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


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One point."""

    point: Point
    """Empty: the file as it is."""
    status: Status
    """``PASS`` where it was modelled."""
    reason: str = ""
    compiled: bool
    """False where it overflows because a point does that needs no more VMEM."""
    latency_ms: float | None = None
    """Modelled; None unless ``PASS``."""
    wait_ms: float = 0.0
    """Part of it: waiting for DMAs."""
    band: Band | None = None
    """Where the measured latency is expected, 9 times in 10."""
    vmem: Vmem | None = None
    """Of the kernel that needs most."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """One call of the target on one chip."""

    inputs: tuple[ArraySpec, ...]
    generator: str = ""
    """Instead of ``inputs``: the function that makes them."""
    arguments: tuple[str, ...] = ()
    """Names of the parameters that take ``inputs``; empty where they were not captured."""
    options: Mapping[str, Literal]
    """The call's other arguments."""
    calls: int = 0
    """How often it was captured."""
    chip: str
    compiler: str
    trials: tuple[Trial, ...]
    """Fastest first, then those that have no latency."""
    default: Trial | None
    """The file as it is; None where it does not compile without a point."""
    near_best: tuple[Trial, ...] = ()
    """The best, and those that the model does not rank against it reliably, fastest first."""
    shortlist: tuple[Trial, ...] = ()
    """``near_best`` and the next fastest: what a TPU has to decide between."""
    constants: frozenset[str] = field(default_factory=frozenset)
    """Knobs that are constants of the target's file; the others are arguments of the function."""

    @property
    def best(self) -> Trial | None:
        """None where no point was modelled."""
        return self.trials[0] if self.trials and self.trials[0].latency_ms is not None else None
