"""Contents of HBM and VMEM that are known: inputs that steer control flow, followed through DMAs."""

from __future__ import annotations

from ratchet.tpu.machine.unknown import Unknown

WORDS_PER_GRANULE = 8


class KnownMemory:
    """A few ranges of words per memory space; everything else is unknown."""

    def __init__(self) -> None:
        self._ranges: list[tuple[str, int, list[object]]] = []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def write(self, space: str, granule: int, words: list[object]) -> None:
        """``words`` from ``granule`` (32 B units) on; what was known there is forgotten."""
        self.forget(space, granule, -(-len(words) // WORDS_PER_GRANULE))
        self._ranges.append((space, granule, words))

    def forget(self, space: str, granule: int, granules: int) -> None:
        self._ranges = [
            (s, start, words)
            for s, start, words in self._ranges
            if s != space or start >= granule + granules or start + len(words) // WORDS_PER_GRANULE <= granule
        ]

    def forget_all(self, space: str) -> None:
        self._ranges = [known for known in self._ranges if known[0] != space]

    def read(self, space: str, granule: int, granules: int) -> list[object] | None:
        """The words of a range, or None if none of them is known; unknown ones are :class:`Unknown`."""
        count = granules * WORDS_PER_GRANULE
        for s, start, words in self._ranges:
            skip = (granule - start) * WORDS_PER_GRANULE
            if s == space and 0 <= skip < len(words):
                held = words[skip : skip + count]
                return held + [Unknown(f"{space} behind a known array")] * (count - len(held))
        return None
