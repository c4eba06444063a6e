"""What happened in each grid step of a kernel: recorded while the machine runs, in memory that does not grow by much.

The pipeline that the compiler puts around a kernel is one loop. Its iterations are grid steps, and one or two more that
only fill or drain it. What a step executed is the difference between the block counters at two heads of the loop;
few differences occur, so each is kept once, as a *path*.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from operator import sub
from typing import NamedTuple

from ratchet.tpu.machine.translate import Translated

FEW_STEPS = 5
"""With fewer iterations than this there is no steady state to speak of."""

Waits = dict[tuple[int, int], int]
"""Cycles waited, by bundle address and sync flag."""


class _Moment(NamedTuple):
    now: int
    counts: tuple[int, ...]
    waits: Waits
    hbm_cycles: float


@dataclass
class Part:
    """A region of all runs of a kernel together."""

    steps: int = 0
    cycles: int = 0
    counts: list[int] = field(default_factory=list)
    """Executions per block."""
    waits: Waits = field(default_factory=dict)
    hbm_cycles: float = 0.0
    """For how long the transfers that were issued here keep HBM busy."""


@dataclass
class Path:
    """Iterations with the same executions per block."""

    counts: tuple[int, ...]
    steps: int = 0
    cycles: int = 0
    wait_cycles: int = 0
    least_cycles: int = 1 << 62
    most_cycles: int = 0


class KernelSteps:
    """All runs of one kernel listing."""

    def __init__(self, translated: Translated, waits: Waits) -> None:
        self._translated = translated
        self._waits = waits
        self._heads: deque[_Moment] = deque(maxlen=2)
        self._first: _Moment | None = None
        self._begin = _Moment(0, (), {}, 0.0)
        self._number = 0
        self._path_of: dict[tuple[int, ...], int] = {}
        self.paths: list[Path] = []
        self.starts: list[int] = []
        """Cycle at which each iteration began."""
        self.ends: list[int] = []
        """Cycle at which each iteration ended: where the next began, or the kernel's end."""
        self.path_numbers = array("i")
        """Index into ``paths`` of each iteration."""
        self.step_waits = array("q")
        """Cycles that each iteration waited."""
        self.parts: dict[str, Part] = {}
        """``first``, ``steady``, ``last``, ``whole``."""

    def begin(self, now: int, hbm_cycles: float) -> None:
        """The kernel starts."""
        self._begin = self._moment(now, hbm_cycles, 0)
        self._heads.clear()
        self._first, self._number = None, 0

    def head(self, now: int, hbm_cycles: float) -> None:
        """Another iteration of the pipeline loop begins; its first block has just been counted."""
        moment = self._moment(now, hbm_cycles, 1)
        if self._heads:
            self._step(self._heads[-1], moment)
        self.starts.append(now)
        self._heads.append(moment)
        if self._number == 2:
            self._first = moment
        self._number += 1

    def end(self, now: int, hbm_cycles: float) -> None:
        """The kernel is done."""
        moment = self._moment(now, hbm_cycles, 0)
        if self._heads:
            self._step(self._heads[-1], moment)
        if self._number < FEW_STEPS or self._first is None:
            self._add("whole", self._begin, moment, self._number)
            return
        self._add("first", self._begin, self._first, 2)
        self._add("steady", self._first, self._heads[0], self._number - 4)
        self._add("last", self._heads[0], moment, 2)

    def _moment(self, now: int, hbm_cycles: float, ahead: int) -> _Moment:
        counts = self._translated.counts
        if ahead and self._translated.loop_block is not None:
            counts = counts.copy()
            counts[self._translated.loop_block] -= ahead
        return _Moment(now, tuple(counts), self._waits.copy(), hbm_cycles)

    def _step(self, start: _Moment, end: _Moment) -> None:
        counts = tuple(map(sub, end.counts, start.counts))
        number = self._path_of.get(counts)
        if number is None:
            number = self._path_of[counts] = len(self.paths)
            self.paths.append(Path(counts))
        path, cycles = self.paths[number], end.now - start.now
        waited = sum(end.waits.values()) - sum(start.waits.values())
        path.steps += 1
        path.cycles += cycles
        path.wait_cycles += waited
        path.least_cycles = min(path.least_cycles, cycles)
        path.most_cycles = max(path.most_cycles, cycles)
        self.ends.append(end.now)
        self.path_numbers.append(number)
        self.step_waits.append(waited)

    def _add(self, name: str, start: _Moment, end: _Moment, steps: int) -> None:
        part = self.parts.setdefault(name, Part(counts=[0] * len(end.counts)))
        part.steps += steps
        part.cycles += end.now - start.now
        part.counts = [n + b - a for n, a, b in zip(part.counts, start.counts, end.counts, strict=True)]
        for key, cycles in end.waits.items():
            part.waits[key] = part.waits.get(key, 0) + cycles - start.waits.get(key, 0)
        part.hbm_cycles += end.hbm_cycles - start.hbm_cycles


class GridSteps:
    """The recorder of one run of a program."""

    def __init__(self) -> None:
        self.waits: dict[str, Waits] = {}
        """Per listing."""
        self.kernels: dict[str, KernelSteps] = {}
        """Per kernel listing."""

    def waited(self, listing: str, address: int, flag: int, cycles: int) -> None:
        """A wait of ``cycles`` at a bundle of ``listing``."""
        waits = self.waits.setdefault(listing, {})
        waits[address, flag] = waits.get((address, flag), 0) + cycles

    def kernel(self, listing: str, translated: Translated) -> KernelSteps:
        """The record of one kernel listing."""
        if listing not in self.kernels:
            self.kernels[listing] = KernelSteps(translated, self.waits.setdefault(listing, {}))
        return self.kernels[listing]
