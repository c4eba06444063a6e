"""The links between the chips of a slice (ICI): who is whose neighbour, and when bytes arrive.

Each link carries one direction and serves its messages first in, first out. A message to a chip that is no neighbour
goes along the first axis, then along the second, and passes through: the second link begins one hop after the first.

"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from ratchet.tpu.chips import Ici
from ratchet.tpu.machine.dma import GRANULE_BYTES, Ends
from ratchet.values import LinkUse

KEPT = 20_000
"""Messages kept one by one at each end of a run, over all links; the others are counted only."""


class Message(NamedTuple):
    """One copy between two chips, or one signal of a semaphore (0 bytes). Times in cycles."""

    source: int
    target: int
    path: tuple[int, ...]
    size_bytes: int
    issued: int
    begin: float
    """When the first link took it."""
    left: float
    """When its last byte left the source: the source's semaphore moves."""
    arrival: float
    """When its last byte has arrived: the target's semaphore moves."""


class Links:
    """All links of a slice during one run. Messages have to be sent in the order of their time."""

    def __init__(self, ici: Ici, clock_hz: float) -> None:
        self._ici = ici
        self._cycles_per_byte = clock_hz / ici.link_bytes_per_s
        self.hop_cycles = ici.hop_s * clock_hz
        self._free = dict.fromkeys(ici.links(), 0.0)
        self._bytes = dict.fromkeys(self._free, 0)
        self._messages = dict.fromkeys(self._free, 0)
        self.log = Ends(KEPT)

    def send(self, now: int, ready: float, source: int, target: int, granules: int) -> Message:
        """Puts a message of ``granules`` x 32 B on its way.

        Args:
            now: cycle at which it was issued.
            ready: cycle from which its bytes can be had from the source's memory.
            source: chip.
            target: another chip.
            granules: 0 for a signal, which takes no bandwidth.
        """
        path = self._ici.path(source, target)
        busy = granules * GRANULE_BYTES * self._cycles_per_byte
        begin = left = at = 0.0
        for number, link in enumerate(itertools.pairwise(path)):
            at = max(at if number else max(ready, now), self._free[link] if granules else 0.0)
            if granules:
                self._free[link] = at + busy
                self._bytes[link] += granules * GRANULE_BYTES
            self._messages[link] += 1
            if not number:
                begin, left = at, at + busy
            at += self.hop_cycles
        message = Message(source, target, path, granules * GRANULE_BYTES, now, begin, left, at + busy)
        self.log.add(message)
        return message

    def use(self) -> Sequence[LinkUse]:
        """What went over each link."""
        return tuple(
            LinkUse(
                source_chip=link[0],
                target_chip=link[1],
                bytes=size,
                messages=self._messages[link],
                busy_cycles=round(size * self._cycles_per_byte),
            )
            for link, size in self._bytes.items()
        )
