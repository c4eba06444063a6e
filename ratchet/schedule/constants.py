"""Physical constants of the schedule machine: fitted once, kept as data, each with its source and spread.

Refitting them needs no recompile: the machine reads them at run time and nothing else depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.chips import Chip
from ratchet.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What a compiled schedule does not say."""

    hbm_efficiency: float
    """Share of the nominal HBM bandwidth that DMAs reach. Served first in, first out."""
    dma_latency_cycles: float
    """From the issue of a DMA until its sync flag moves, beyond the time its bytes take."""
    write_cost: float
    """Time of a written byte over that of a read one."""
    local_bytes_per_cycle: float
    """DMAs that do not touch HBM."""
    local_latency_cycles: float
    source: str


# Fitted on 17 device-timed grouped matmuls on v5e (0.6-1.0 % mean error); 26 device-timed v5p attention kernels and
# two wall-clock sources agree. Spread: efficiency +-0.01, latency +-13 cycles. Local DMAs are not measured: twice
# the HBM bandwidth and half its latency are assumed, and every program that uses them says so.
_FITTED = {
    "v5e": Constants(
        hbm_efficiency=0.88,
        dma_latency_cycles=667,
        write_cost=1.06,
        local_bytes_per_cycle=1092,
        local_latency_cycles=333,
        source="fit on published v5e grouped-matmul device timings; local DMAs assumed",
    )
}


def constants_for(chip: Chip) -> Constants:
    """Raises Refusal USAGE for a chip that nothing was fitted for."""
    if chip.name not in _FITTED:
        raise Refusal(
            Status.USAGE,
            f"no fitted schedule constants for {chip.name}; known: {', '.join(_FITTED)}. Choose one of those.",
        )
    return _FITTED[chip.name]
