"""How far a modelled latency is from the measured one of the same kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """A row of the ledger that has both latencies."""

    id: str
    chip: str
    measured_ms: float
    modelled_ms: float
    outside_band: bool
    """Whether the measured latency is outside the model's 90 % band."""

    @property
    def ratio(self) -> float:
        """Measured over modelled."""
        return self.measured_ms / self.modelled_ms
