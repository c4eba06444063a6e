"""The links between the chips of a slice (ICI).

Calibrated on two published programs on four v5e chips. No published timing resolves single messages: the hop comes from
a sum that waits for thousands of them in turn.
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

    @property
    def links_of_a_chip(self) -> int:
        """Directions in which the chip with most neighbours sends at once; it receives over as many."""
        return sum(min(2, length - 1) for length in self.shape)

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


# Fitted on AMLeng/tpu-kernels' matmul of bf16[8192,8192] on 2x2 chips, device times: one ppermute of 67 MB per chip in
# a ring (2.932 ms: the bandwidth), and a psum of f32[4096,8192] in blocks (4.641 ms: the hop). 50 GB/s is a quarter of
# the advertised 1600 Gbit/s (Google's v5e pages). `benchmarks.fidelity` prints what the two are modelled at, in sample.
# No wraparound below 16 chips: Google's v5e pages.
_KNOWN = {
    "v5e": Ici(
        shape=(2, 2),
        link_bytes_per_s=50e9,
        hop_s=1.25e-6,
        source="fitted on a ppermute and a psum of one author's, timed on 2x2 chips",
    )
}


def ici_of(name: str) -> Ici:
    """The smallest slice of a chip. Raises Refusal USAGE for a chip whose links are not described."""
    if name not in _KNOWN:
        raise Refusal(Status.USAGE, f"no slice of {name} is described; known: {', '.join(_KNOWN)}. Choose one.")
    return _KNOWN[name]
