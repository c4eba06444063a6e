"""The program of a kernel cut into pieces, with what limits each. Pure.

The bundles are cut at the edges of basic blocks and ends of turns, and every few dozen. The kernel's unit is its matrix
units, or, where it has hardly any matrix products, the slot that is fullest. A piece has one limit, the first that is
true of these: the unit is in use nearly all the time; a slot is full; empty bundles wait for something.

Ends of turns are the beginning of a block, up to where the unit is used as much as is usual in the block, its end from
where it no longer is, and short blocks that do not use it: the compiler schedules nothing across a branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ratchet.tpu.account.costs import Activity, Costs
from ratchet.tpu.chips.units import CAPACITY, SLOTS
from ratchet.tpu.dump.columns import ranges
from ratchet.values.occupancy import NOTHING, Limit

PIECE, MOST_PIECES = 64, 2000
"""Bundles of a piece, where that makes no more than so many."""
FULL = 0.88
"""From this share in use on, a unit is full: cross-lane units take an operation each 8 or 9 cycles."""
EMPTY = 0.25
"""From this share of empty bundles on, a piece waits for something."""
USUAL = 0.75
"""From this share of its use between its first and last use in a block on, the unit is used as much as is usual."""
SHORT = 128
"""Blocks below so many bundles that do not use the unit are between turns."""
MATRIX = 0.05
"""From this share of a kernel's bundles on, the matrix units are its unit."""
SCALAR = 0.1
"""Below this share of the scalar slots' use, the fullest slot of vector code is not a kernel's unit, but those are."""
_VECTOR = ("VSTORE", "VALU", "VLOAD", "EUP", "XLU", "VPOP")
"""In the order in which it is asked whether they are full."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pieces:
    """Sums over the executed bundles of each piece, those that are executed."""

    begins: np.ndarray
    ends: np.ndarray
    blocks: np.ndarray
    """Which basic block each is of."""
    bundles: np.ndarray
    empty: np.ndarray
    waited: np.ndarray
    used: np.ndarray
    """Cycles for which each slot is in use, in the order of ``SLOTS``."""
    stalls: np.ndarray
    """Empty bundles by what is waited for: ``Program.waits``."""
    limits: Sequence[Limit]
    turn_end: np.ndarray
    """Whether it is at an end of a turn."""

    def __len__(self) -> int:
        return len(self.begins)

    def of(self, bundles: np.ndarray) -> np.ndarray:
        """The piece that each bundle is in; -1 for one that is not executed."""
        piece = np.searchsorted(self.begins, bundles, "right") - 1
        return np.where(bundles < np.append(self.ends, 0)[piece], piece, -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A kernel's listing and its executions, bundle by bundle."""

    costs: Costs
    times: np.ndarray
    """Executions."""
    waited: np.ndarray
    """Cycles that were waited there, for DMAs and semaphores."""
    matrix_units: int

    @cached_property
    def capacity(self) -> Mapping[str, int]:
        """Slots of a bundle: those of a v5e, or what a bundle of this listing has where that is more."""
        most = self.costs.slots.max(axis=0, initial=0).tolist()
        return {slot: max(CAPACITY[slot], has) for slot, has in zip(SLOTS, most, strict=True)}

    @cached_property
    def used(self) -> np.ndarray:
        """Share of each slot in use; matrix and cross-lane units for as long as what is issued keeps them busy."""
        used = self.costs.slots / np.array([self.capacity[slot] for slot in SLOTS])
        used[:, SLOTS.index("MXU")] = self._occupied(self.costs.mxu) / self.matrix_units
        used[:, SLOTS.index("XLU")] = self._occupied(self.costs.xlu) / self.capacity["XLU"]
        return used

    def _occupied(self, cycles: np.ndarray) -> np.ndarray:
        """How many units are busy, from the cycles for which what is issued keeps each so; at most to the block's end.

        Products come in bursts. Counted where they issue, they would make as many stretches.
        """
        blocks, size = self.costs.blocks, len(cycles)
        until = blocks[np.searchsorted(blocks[:, 0], np.arange(size), "right") - 1, 1]
        busy = np.zeros(size, np.int64)
        for unit in cycles.T[cycles.any(axis=0)]:
            (issued,) = np.nonzero(unit)
            begun = np.bincount(issued, minlength=size + 1)
            over = np.bincount(np.minimum(issued + unit[issued], until[issued]), minlength=size + 1)
            busy += np.cumsum(begun - over)[:-1] > 0
        return busy

    @cached_property
    def unit(self) -> str:
        """The kernel's."""
        # No product of matrices: the order in which those add up depends on the processor.
        total = dict(zip(SLOTS, (self.times[:, None] * self.used).sum(axis=0).tolist(), strict=True))
        if total["MXU"] >= MATRIX * max(1, int(self.times.sum())):
            return "MXU"
        fullest = max(_VECTOR, key=lambda slot: total[slot])
        return fullest if total[fullest] >= SCALAR * total["SALU"] else "SALU"

    @cached_property
    def waits(self) -> list[str]:
        """What empty bundles wait for, by unit."""
        return list(dict.fromkeys(cell.unit for cell in self.costs.cells if cell.activity is Activity.STALL))

    @cached_property
    def turn_ends(self) -> np.ndarray:
        """Whether a bundle is at an end of a turn."""
        use, ends = self.used[:, SLOTS.index(self.unit)], np.zeros(len(self.times), bool)
        for begin, end in self.costs.blocks.tolist():
            if not use[begin:end].any():
                ends[begin:end] |= end - begin < SHORT
                continue
            low, high = self._usual(use[begin:end])
            ends[begin : begin + low] = ends[begin + high : end] = True
        return ends

    def _usual(self, use: np.ndarray) -> tuple[int, int]:
        """From where to where a block uses the unit as much as is usual in it."""
        (working,) = np.nonzero(use)
        first, last = int(working[0]), int(working[-1]) + 1
        wide = min(PIECE, last - first)
        sums = np.concatenate(([0.0], np.cumsum(use)))
        means = (sums[first + wide : last + 1] - sums[first : last + 1 - wide]) / wide
        (enough,) = np.nonzero(means >= USUAL * (sums[last] - sums[first]) / (last - first))
        return first + int(enough[0]), first + int(enough[-1]) + wide

    @cached_property
    def pieces(self) -> Pieces:
        """All of it that is executed."""
        size = len(self.times)
        marks = [np.array([0, size]), self.costs.blocks.ravel(), np.flatnonzero(np.diff(self.turn_ends)) + 1]
        edges = np.unique(np.concatenate(marks))
        wide = max(PIECE, -(-size // MOST_PIECES))
        sizes = np.diff(edges)
        parts = -(-sizes // wide)
        size_of, parts_of = np.repeat(sizes, parts), np.repeat(parts, parts)
        begins = np.repeat(edges[:-1], parts) + ranges(np.zeros_like(parts), parts) * size_of // parts_of
        ends = np.append(begins[1:], size)
        executed = self.times[begins] > 0
        begins, ends = begins[executed], ends[executed]
        bundles, empty, waited, used = (
            _sums(values, begins, ends)
            for values in (self.times, self.times * self.costs.empty, self.waited, self.times[:, None] * self.used)
        )
        stalls = self._stalls(begins, ends)
        return Pieces(
            begins=begins,
            ends=ends,
            blocks=np.searchsorted(self.costs.blocks[:, 0], begins, "right") - 1,
            bundles=bundles,
            empty=empty,
            waited=waited,
            used=used,
            stalls=stalls,
            limits=list(self._limits(used / bundles[:, None], empty / bundles, stalls)),
            turn_end=self.turn_ends[begins],
        )

    def _stalls(self, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Empty bundles by piece and unit."""
        number = {unit: place for place, unit in enumerate(self.waits)}
        bundle, group = self.costs.shares
        cells = [(self.costs.cells[cell], among) for cell, among in self.costs.sharers]
        unit = np.array([number[c.unit] if c.activity is Activity.STALL else -1 for c, _ in cells], np.int64)
        share = np.array([1 / among for _, among in cells])
        is_stall = unit[group] >= 0
        bundle, group = bundle[is_stall], group[is_stall]
        sums = np.zeros((len(self.times), len(number)))
        np.add.at(sums, (bundle, unit[group]), self.times[bundle] * share[group])
        return _sums(sums, begins, ends)

    def _limits(self, used: np.ndarray, empty: np.ndarray, stalls: np.ndarray) -> Iterator[Limit]:
        """By shares of the pieces."""
        order = (self.unit, *_VECTOR, "SALU")
        full = used[:, [SLOTS.index(slot) for slot in order]] >= FULL
        for slots, share, by_unit in zip(full.tolist(), empty.tolist(), stalls, strict=True):
            if any(slots):
                yield Limit(unit=order[slots.index(True)], empty=False)
            elif share >= EMPTY and by_unit.any():
                yield Limit(unit=self.waits[int(by_unit.argmax())], empty=True)
            else:
                yield Limit(unit=NOTHING, empty=False)


def _sums(values: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Of rows from each beginning to its end."""
    before = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
    return before[ends] - before[begins]
