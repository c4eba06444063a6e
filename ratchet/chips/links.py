"""The links between the chips of a slice (ICI).

**Never calibrated.** No published timing resolves single messages, so these are the two numbers of the literature, and
whatever a program spends on its links has no error that anybody measured.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Ici:
    """The interconnect of one slice."""

    shape: tuple[int, ...]
    """Chips along each axis; neighbouring ids differ along the first one. No wraparound."""
    link_bytes_per_s: float
    """Per link and direction."""
    hop_s: float
    """From a message's last byte on a link until the next chip has it, the DMA engine's own latency included."""
    source: str

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    def coordinates(self, chip: int) -> tuple[int, ...]:
        """Place of a chip along each axis."""
        places = []
        for length in self.shape:
            chip, place = divmod(chip, length)
            places.append(place)
        return tuple(places)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """The chips that a message passes, both ends included: axis after axis."""
        here, there = list(self.coordinates(source)), self.coordinates(target)
        strides = (1, *itertools.accumulate(self.shape, lambda a, b: a * b))
        path = [source]
        for axis, goal in enumerate(there):
            while here[axis] != goal:
                here[axis] += 1 if goal > here[axis] else -1
                path.append(sum(place * stride for place, stride in zip(here, strides, strict=False)))
        return tuple(path)

    def links(self) -> list[tuple[int, int]]:
        """All links, each direction on its own."""
        pairs = itertools.permutations(range(self.chips), 2)
        return [pair for pair in pairs if len(self.path(*pair)) == 2]


# 45 GB/s and about 1 us: "How to Scale Your Model", TPU chapter. Agrees with published v5e sums over 8 chips: 87 GB/s
# for large arrays, which is two links at once, and 6 us for 8 bytes. No wraparound below 16 chips: Google's v5e pages.
_KNOWN = {
    "v5e": Ici(
        shape=(2, 2),
        link_bytes_per_s=45e9,
        hop_s=1e-6,
        source="the Scaling Book's 45 GB/s per link and direction and 1 us per hop; not calibrated",
    )
}


def ici_of(name: str) -> Ici:
    """The smallest slice of a chip. Raises Refusal USAGE for a chip whose links are not described."""
    if name not in _KNOWN:
        raise Refusal(Status.USAGE, f"no slice of {name} is described; known: {', '.join(_KNOWN)}. Choose one.")
    return _KNOWN[name]
