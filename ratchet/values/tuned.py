"""What came of the points of a kernel for one call of it on one chip: which is fastest, as modelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ratchet.values.artefact import ArraySpec
from ratchet.values.status import Status
from ratchet.values.sweep import Literal, Point
from ratchet.values.verdict import Band
from ratchet.values.vmem import Vmem


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
