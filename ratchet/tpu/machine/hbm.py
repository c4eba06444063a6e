"""How long a DMA takes that reads or writes HBM.

One queue serves all copies, first in, first out, at a fitted share of the nominal bandwidth. Four things make a copy
take longer than its bytes:

- **Turnaround.** HBM reads or writes. A change of direction costs a fixed time, again for every so many bytes; for
  fewer bytes with every doubling of the width of pieces.
- **Spread.** Addresses are dealt to channels in rows. Pieces narrower than a row load some channels more than others;
  the last channel ends late. Only the copy waits for it: the other channels are already at work for the next one.
- **Write lag.** A write is acknowledged as if its first bytes went at a lower rate, whatever else HBM does.
- **Narrow writes.** A write in short pieces occupies HBM for longer.

``docs/model.md`` says what pins each constant down, and which alternatives explain the published timings less well.
"""

from __future__ import annotations

from math import log2, sqrt

from ratchet.tpu.chips import Chip
from ratchet.tpu.chips.fitted import Constants

CHANNEL_ROW_BYTES = 16 * 1024
"""A contiguous piece of this size loads all channels alike: 16 channels, 1 KiB each in turn."""

NARROWEST_PIECE_BYTES, WIDEST_PIECE_BYTES = 4 * 1024, 64 * 1024
"""Pieces beyond these count as so wide when HBM turns around: 64 KiB is twice the widest that was ever measured."""

NARROW_WRITE_BYTES = 8 * 1024
"""Contiguous pieces of a write that are narrower occupy HBM for longer than their bytes."""


class HbmQueue:
    """The queue in front of the HBM of one core. Bytes and cycles; times are cycles of the core's clock."""

    def __init__(self, chip: Chip, constants: Constants) -> None:
        self._cycles_alone = chip.clock_hz / (constants.hbm_efficiency * chip.hbm_bytes_per_s)
        self.free = 0.0
        """When the last byte of all copies so far will have passed."""
        self.busy_cycles = 0.0
        self._constants = constants
        self._writes = False
        """Direction of the last copy."""
        self._unevenness = 0.0
        """Mean number of bytes by which the pieces in the queue are narrower than a row of channels."""
        self.shared_by(chip.cores)

    def shared_by(self, cores: int) -> None:
        """From now on so many cores have equal parts of the bandwidth."""
        self.cycles_per_byte = cores * self._cycles_alone
        self._lag_per_byte = (1 / self._constants.write_rate - 1) * self.cycles_per_byte

    def copy(self, now: float, size: int, piece: int, *, writes: bool) -> tuple[float, float]:
        """Queues a copy of ``size`` bytes in contiguous pieces of ``piece`` bytes, issued at ``now``.

        Returns:
            When HBM begins with it, and when its sync flag moves.
        """
        constants = self._constants
        ready = now + (constants.write_issue_cycles if writes else constants.read_issue_cycles)
        backlog = max(0.0, self.free - ready)
        begin = ready + backlog
        spread = self._spread(backlog / self.cycles_per_byte, size, piece)
        passing = size * self.cycles_per_byte
        turned = again = 0.0
        if writes != self._writes:
            turned = constants.turnaround_cycles
            sooner = 1 + constants.turnaround_width * _doublings(piece)
            again = turned * max(0.0, size * sooner / constants.turnaround_bytes - 1)
        if writes:
            narrow = max(0.0, size / max(1, piece) - size / NARROW_WRITE_BYTES) * constants.write_piece_cycles
            lag = min(size, constants.write_rate_bytes) * self._lag_per_byte
            held, latency = again + narrow, spread * constants.write_spread
            done = begin + turned + passing + max(held, lag) + latency
        else:
            held, latency = again, spread * constants.read_spread + constants.read_latency_cycles
            done = begin + turned + passing + held + latency
        self._writes = writes
        self.occupy(begin, turned + passing + held)
        return begin, done

    def carry(self, now: float, size: int) -> None:
        """Queues ``size`` bytes that another unit of the chip moves, at the bandwidth of all of it."""
        self.occupy(max(now, self.free), size * self._cycles_alone)

    def occupy(self, begin: float, cycles: float) -> None:
        """Nothing else is served for ``cycles`` from ``begin`` on."""
        self.free = begin + cycles
        self.busy_cycles += cycles

    def _spread(self, ahead: float, size: int, piece: int) -> float:
        """Standard deviation of a channel's load, in cycles, after the bytes ``ahead`` in the queue and these.

        A piece of p bytes of a row of R falls on a share p / R of the channels: per byte, the variance is R - p.
        """
        variance = size * max(0, CHANNEL_ROW_BYTES - piece) + ahead * self._unevenness
        self._unevenness = variance / max(1.0, size + ahead)
        return sqrt(variance) * self.cycles_per_byte


def _doublings(piece: int) -> float:
    """How often the width of a row of channels has to be doubled for that of pieces, when HBM turns around: -2 to 2."""
    return log2(min(max(piece, NARROWEST_PIECE_BYTES), WIDEST_PIECE_BYTES) / CHANNEL_ROW_BYTES)
