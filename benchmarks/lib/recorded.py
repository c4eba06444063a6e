"""A space of four knobs whose points were all modelled once, for searches that are replayed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from benchmarks.lib.sources import ROOT
from ratchet.search.space import Space, Tried, space_of
from ratchet.values import Point
from ratchet.values.status import Status

KERNEL = ROOT / "benchmarks" / "data" / "search" / "four_knobs.py"
SPACE = KERNEL.with_suffix(".json")
NEAR = 1.01


class Recorded:
    """The recorded space."""

    def __init__(self) -> None:
        self.space: Space = space_of(KERNEL.read_bytes(), KERNEL.name, [], [])
        self.naive = self.space.nearest(self.space.constants)
        self.results: dict[object, Tried] = {}
        for row in json.loads(SPACE.read_text())["points"]:
            status = Status[row["status"]]
            made = Tried(point=row["point"], status=status, latency_ms=row["latency_ms"], vmem_bytes=row["vmem_bytes"])
            self.results[self.space.key(row["point"])] = made
        points = [self.space.key(point) for point in self.space.points()]
        if set(points) != set(self.results):
            raise ValueError(f"{SPACE.name} is not the space of {KERNEL.name}: record it again")
        self.best = min(one.latency_ms for one in self.results.values() if one.latency_ms is not None)

    def of(self, point: Point) -> Tried:
        return self.results[self.space.key(point)]

    def within(self, tried: Iterable[Tried], near: float = NEAR) -> float:
        """How many trials it took to come that near to the best; infinity where it never did."""
        wanted = self.best * near
        return next((n for n, one in enumerate(tried, 1) if one.latency_ms and one.latency_ms <= wanted), math.inf)
