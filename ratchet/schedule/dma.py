"""DMAs and sync flags: the part of the machine where time passes other than by bundles.

One queue serves all DMAs that touch HBM, first in, first out, at a fitted share of the nominal bandwidth;
a sync flag moves one latency after its last byte. DMAs between on-chip memories have a queue of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Any

from ratchet.chips import Chip
from ratchet.schedule.constants import Constants

GRANULE_BYTES = 32
"""Unit of DMA sizes and of DMA sync-flag counts."""

KEPT = 50_000
"""DMAs and waits kept at each end of a run for the timeline; those between are counted, not kept."""

Transfer = tuple[int, int, int, int, str, str]
"""Issue cycle, start of service, cycle of completion, bytes, source and target space."""


class Ends:
    """The first and the last of a long sequence, and how many there were."""

    def __init__(self, keep: int) -> None:
        self.first: list[Any] = []
        self.last: deque[Any] = deque(maxlen=keep)
        self.keep = keep
        self.count = 0

    def add(self, item: tuple[Any, ...]) -> None:
        self.count += 1
        if len(self.first) < self.keep:
            self.first.append(item)
        else:
            self.last.append(item)


class Memory:
    """HBM and on-chip DMA queues and the sync flags that they move."""

    def __init__(self, chip: Chip, constants: Constants, deadlock: Callable[[int, int, int, int], Exception]) -> None:
        per_cycle = constants.hbm_efficiency * chip.hbm_bytes_per_s / chip.cores / chip.clock_hz
        self._read_cost = GRANULE_BYTES / per_cycle
        self._write_cost = self._read_cost * constants.write_cost
        self._latency = constants.dma_latency_cycles
        self._local_cost = GRANULE_BYTES / constants.local_bytes_per_cycle
        self._local_latency = constants.local_latency_cycles
        self._deadlock = deadlock
        self._hbm_free = 0.0
        self._local_free = 0.0
        self._values: dict[int, int] = {}
        self._pending: dict[int, deque[tuple[float, int]]] = {}
        self.read_granules = 0
        self.write_granules = 0
        self.local_granules = 0
        self.hbm_busy_cycles = 0.0
        self.wait_cycles = 0
        self.transfers = Ends(KEPT)
        self.waits = Ends(KEPT)
        self.waited_on: dict[int, int] = {}
        """Cycles waited per sync flag."""

    def start(self, now: int, source: str, target: str, granules: int, flag: int) -> None:
        """Issues a DMA of ``granules`` x 32 B that will add as many to ``flag``."""
        if source == "hbm" or target == "hbm":
            cost = 0.0
            if source == "hbm":
                cost += granules * self._read_cost
                self.read_granules += granules
            if target == "hbm":
                cost += granules * self._write_cost
                self.write_granules += granules
            begin = self._hbm_free if self._hbm_free > now else now
            self._hbm_free = end = begin + cost
            self.hbm_busy_cycles += cost
            done = end + self._latency
        else:
            self.local_granules += granules
            begin = self._local_free if self._local_free > now else now
            self._local_free = end = begin + granules * self._local_cost
            done = end + self._local_latency
        pending = self._pending.get(flag)
        if pending is None:
            pending = self._pending[flag] = deque()
        if pending and pending[-1][0] > done:
            # A faster queue overtook a slower one on the same flag: keep arrivals in order of time.
            items = sorted([*pending, (done, granules)])
            pending.clear()
            pending.extend(items)
        else:
            pending.append((done, granules))
        self.transfers.add((now, int(begin), ceil(done), granules * GRANULE_BYTES, source, target))

    def wait(self, now: int, flag: int, least: int, address: int) -> int:
        """Cycle at which ``flag`` holds at least ``least``, not before ``now``."""
        value = self._values.get(flag, 0)
        pending = self._pending.get(flag)
        time: float = now
        if pending:
            while pending and (value < least or pending[0][0] <= time):
                arrival, amount = pending.popleft()
                value += amount
                time = max(time, arrival)
            self._values[flag] = value
        if value < least:
            raise self._deadlock(flag, value, least, address)
        until = ceil(time)
        if until > now:
            self.wait_cycles += until - now
            self.waited_on[flag] = self.waited_on.get(flag, 0) + until - now
            self.waits.add((now, until, flag))
        return until

    def add(self, flag: int, amount: int) -> None:
        self._values[flag] = self._values.get(flag, 0) + amount

    def set(self, flag: int, value: int) -> None:
        self._values[flag] = value

    def value(self, now: int, flag: int) -> int:
        """What ``flag`` holds at ``now``."""
        pending = self._pending.get(flag)
        value = self._values.get(flag, 0)
        while pending and pending[0][0] <= now:
            value += pending.popleft()[1]
        self._values[flag] = value
        return value
