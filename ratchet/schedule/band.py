"""How far a modelled latency may be from the measured one, and whether two of them differ. Pure but for its table.

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
from ratchet.schedule.constants import Constants, constants_for
from ratchet.values import Timeline

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
    """What was found on published timings."""

    width: Mapping[str, float]
    """Per regime: the band is the modelled latency divided and multiplied by one plus this."""
    resolution: float
    """Smallest relative difference between programs of one kernel family that was ranked right 95 % of the time."""
    count: Mapping[str, int]
    """Per regime, the timings it rests on."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """Where the measured latency is expected, 9 times in 10."""

    regime: str
    low_ms: float
    high_ms: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Whether two modelled latencies may be told apart, and by which rule."""

    same: bool
    reason: str


@functools.cache
def stored() -> Bands:
    """The table in ``bands.json``."""
    found = json.loads(FILE.read_text())
    return Bands(
        width={name: entry["width"] for name, entry in found["regimes"].items()},
        count={name: entry["count"] for name, entry in found["regimes"].items()},
        resolution=found["resolution"]["value"],
    )


def hbm_busy_share(timeline: Timeline, constants: Constants | None = None) -> float:
    """Share of the run in which HBM carries bytes, at the fitted share of its bandwidth."""
    chip = CHIPS[timeline.chip]
    constants = constants or constants_for(chip)
    per_cycle = constants.hbm_efficiency * chip.hbm_bytes_per_s / chip.cores / timeline.clock_hz
    cost = timeline.hbm_read_bytes + timeline.hbm_write_bytes * constants.write_cost
    return cost / per_cycle / max(1, timeline.cycles)


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
    return Band(regime=name, low_ms=timeline.latency_ms / factor, high_ms=timeline.latency_ms * factor)


def same_within_band(a: Timeline, b: Timeline, *, same_family: bool, bands: Bands | None = None) -> Comparison:
    """Whether two modelled latencies count as the same.

    Args:
        a: one program.
        b: the other.
        same_family: both are one kernel with other block sizes or small edits, compiled for one chip: then the model
            ranks them by far smaller differences than its bands are wide, because most of its error is common to both.
        bands: another table than the stored one.
    """
    bands = bands or stored()
    if a.chip != b.chip:
        same_family = False
    difference = abs(math.log(a.latency_ms / b.latency_ms))
    if same_family:
        same = difference < math.log1p(bands.resolution)
        return Comparison(
            same=same,
            reason=f"{math.expm1(difference):.2%} apart; the model ranks kernels of one family right from "
            f"{bands.resolution:.2%} on",
        )
    first, second = band(a, bands), band(b, bands)
    same = first.low_ms <= second.high_ms and second.low_ms <= first.high_ms
    return Comparison(
        same=same,
        reason=f"90 % bands {first.low_ms:.4g} to {first.high_ms:.4g} ms and {second.low_ms:.4g} to "
        f"{second.high_ms:.4g} ms {'overlap' if same else 'do not overlap'}",
    )


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


def resolution_for(pairs: Sequence[tuple[float, float]], level: float = 0.95, window: int = 200) -> float:
    """Smallest relative difference from which on pairs are ranked right at least ``level`` of the time.

    Args:
        pairs: modelled and measured log ratio of two programs of one family.
        level: share that must be right.
        window: pairs of neighbouring modelled difference that are looked at together.

    Raises:
        ValueError: without pairs.
    """
    if not pairs:
        raise ValueError("no pairs to rank")
    ordered = sorted((abs(modelled), modelled * measured > 0) for modelled, measured in pairs)
    size = min(window, len(ordered))
    right = sum(ok for _, ok in ordered[-size:])
    start = len(ordered) - size
    if right < level * size:
        return math.inf
    while start > 0:
        right += ordered[start - 1][1] - ordered[start + size - 1][1]
        if right < level * size:
            break
        start -= 1
    return math.expm1(ordered[start + size // 2][0] if start else ordered[0][0])
