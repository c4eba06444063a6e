"""How far a modelled latency may be from the measured one. Pure, except for its table.

The table is part of ``ratchet/tpu/chips/fitted.json``. It comes from the errors of the model on published timings, each
predicted by constants that were fitted without the timings of its own kernel: ``python -m benchmarks.calibrate`` writes
it. Errors differ by what bounds a program and by chip, so there is a band for each regime of each chip.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from ratchet.tpu.chips import CHIPS, fitted
from ratchet.values import Band, Timeline
from ratchet.values.omission import Unmodelled

COMPUTE, VECTOR, LATENCY, BANDWIDTH = "compute", "vector units", "dma latency", "bandwidth"
REGIMES = (COMPUTE, VECTOR, LATENCY, BANDWIDTH)

LEVEL = 0.9
"""Share of programs whose measured latency the band is stated to hold."""

STREAMS_WIDTH = 0.35
"""Of a program with a kernel of the SparseCores: chosen by hand, nearly three times the largest error of a published
row, in sample, for they are few and of one kind (``python -m benchmarks.sparse`` prints both)."""

BUSY_SHARE = 0.85
"""From this share of time with HBM busy on, bandwidth bounds a program."""
WAIT_SHARE = 0.1
"""From this share of time spent waiting for DMAs on, while HBM is not busy, their latency bounds it."""
MATRIX_SHARE = 0.4
"""Below this share of time with the matrix units busy, where memory does not bound a program, vector units do."""


@dataclass(frozen=True, kw_only=True)
class Bands:
    """The spread of the model's errors on published timings."""

    width: Mapping[tuple[str, str], float]
    """Per chip and regime: the band is the modelled latency divided and multiplied by one plus this."""
    count: Mapping[tuple[str, str], int]
    """Likewise, the timings of that chip and regime that it rests on; 0 where none was timed."""


@functools.cache
def stored() -> Bands:
    """The table that is kept."""
    chips = fitted.stored()["chips"].items()
    entries = {(chip, name): entry for chip, known in chips for name, entry in known["bands"].items()}
    return Bands(
        width={key: entry["width"] for key, entry in entries.items()},
        count={key: entry["count"] for key, entry in entries.items()},
    )


def hbm_busy_share(timeline: Timeline, constants: fitted.Constants | None = None) -> float:
    """Share of the run in which HBM carries bytes, at the fitted share of its bandwidth."""
    chip = CHIPS[timeline.chip]
    constants = constants or chip.constants
    per_cycle = constants.hbm_efficiency * chip.hbm_bytes_per_s / chip.cores / timeline.clock_hz
    return (timeline.hbm_read_bytes + timeline.hbm_write_bytes) / per_cycle / max(1, timeline.cycles)


def regime_of(busy_share: float, wait_share: float, matrix_share: float) -> str:
    """What bounds a program, by the shares of its time with HBM busy, waiting for DMAs and with matrix units busy."""
    if busy_share >= BUSY_SHARE:
        return BANDWIDTH
    if wait_share >= WAIT_SHARE:
        return LATENCY
    return COMPUTE if matrix_share >= MATRIX_SHARE else VECTOR


def regime(timeline: Timeline) -> str:
    """``compute`` (matrix units), ``vector units``, ``dma latency`` or ``bandwidth``."""
    cycles = max(1, timeline.cycles)
    return regime_of(hbm_busy_share(timeline), timeline.dma_wait_cycles / cycles, timeline.mxu_busy_cycles / cycles)


def band(timeline: Timeline, bands: Bands | None = None) -> Band:
    """Where the measured latency of a program is expected with 90 % confidence."""
    bands = bands or stored()
    name, width = regime(timeline), 0.0
    if timeline.chips:  # what is not known of the links counts for as long as chips wait for them
        width = (
            CHIPS[timeline.chip].ici(len(timeline.chips)).spread * timeline.ici_wait_cycles / max(1, timeline.cycles)
        )
    if Unmodelled.STREAMS in timeline.not_modelled:
        width = math.hypot(width, STREAMS_WIDTH)
    factor = 1 + math.hypot(bands.width[timeline.chip, name], width)
    return Band(bound_by=name, low_ms=timeline.latency_ms / factor, high_ms=timeline.latency_ms * factor)
