"""How far a modelled latency may be from the measured one. Pure, except for its table.

The table, ``bands.json`` beside this file, comes from the errors of the model on published timings, each predicted by
constants that were fitted without the timings of its own kernel: ``python -m benchmarks.calibrate`` writes it. Errors
differ by what bounds a program, so there is a band for each regime.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ratchet.chips import CHIPS
from ratchet.chips.constants import Constants
from ratchet.values import Band, Timeline

FILE = Path(__file__).with_name("bands.json")

COMPUTE, LATENCY, BANDWIDTH = "compute", "dma latency", "bandwidth"
REGIMES = (COMPUTE, LATENCY, BANDWIDTH)

LEVEL = 0.9
"""Share of programs whose measured latency the band is stated to hold."""

BUSY_SHARE = 0.85
"""From this share of time with HBM busy on, bandwidth bounds a program."""
WAIT_SHARE = 0.1
"""From this share of time spent waiting for DMAs on, while HBM is not busy, their latency bounds it."""


@dataclass(frozen=True, kw_only=True)
class Bands:
    """The spread of the model's errors on published timings."""

    width: Mapping[str, float]
    """Per regime: the band is the modelled latency divided and multiplied by one plus this."""
    count: Mapping[str, int]
    """Per regime, the timings it rests on."""


@functools.cache
def stored() -> Bands:
    """The table in ``bands.json``."""
    table = json.loads(FILE.read_text())
    return Bands(
        width={name: entry["width"] for name, entry in table["regimes"].items()},
        count={name: entry["count"] for name, entry in table["regimes"].items()},
    )


def hbm_busy_share(timeline: Timeline, constants: Constants | None = None) -> float:
    """Share of the run in which HBM carries bytes, at the fitted share of its bandwidth."""
    chip = CHIPS[timeline.chip]
    constants = constants or chip.constants
    per_cycle = constants.hbm_efficiency * chip.hbm_bytes_per_s / chip.cores / timeline.clock_hz
    return (timeline.hbm_read_bytes + timeline.hbm_write_bytes) / per_cycle / max(1, timeline.cycles)


def regime_of(busy_share: float, wait_share: float) -> str:
    """What bounds a program, by the shares of its time with HBM busy and spent waiting for DMAs."""
    if busy_share >= BUSY_SHARE:
        return BANDWIDTH
    return LATENCY if wait_share >= WAIT_SHARE else COMPUTE


def regime(timeline: Timeline) -> str:
    """``compute``, ``dma latency`` or ``bandwidth``."""
    return regime_of(hbm_busy_share(timeline), timeline.dma_wait_cycles / max(1, timeline.cycles))


def band(timeline: Timeline, bands: Bands | None = None) -> Band:
    """Where the measured latency of a program is expected with 90 % confidence."""
    bands = bands or stored()
    name = regime(timeline)
    factor = 1 + bands.width[name]
    return Band(bound_by=name, low_ms=timeline.latency_ms / factor, high_ms=timeline.latency_ms * factor)


def width_for(log_ratios: Sequence[float], level: float = LEVEL) -> float:
    """Relative half-width that holds the next case with probability ``level``, from those seen.

    The conformal quantile: of n errors the ceil((n + 1) * level)-th in size, the largest where n is too small.

    Raises:
        ValueError: without errors.
    """
    if not log_ratios:
        raise ValueError("no errors to make a band from")
    sizes = sorted(abs(value) for value in log_ratios)
    return math.expm1(sizes[min(len(sizes), math.ceil((len(sizes) + 1) * level)) - 1])
