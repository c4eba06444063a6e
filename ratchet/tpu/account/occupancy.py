"""Which units are in use along a kernel's program, and what keeps them from more. Pure.

Neighbouring pieces of the program that are alike are one stretch. How unlike two are is the squared distance of what is
in use there, weighted as in Ward's method ("Hierarchical Grouping to Optimize an Objective Function", 1963): those
whose merging loses least come first, so that a short stretch stays where it is very unlike those around it. Where the
kernel's unit is in use all the time, it does not matter what else is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ratchet.tpu.account.costs import Costs, executed
from ratchet.tpu.account.pieces import FULL, Pieces, Program
from ratchet.tpu.account.places import line_of
from ratchet.tpu.chips.units import SLOTS
from ratchet.tpu.dump.listing import Listing
from ratchet.tpu.machine.record import Waited
from ratchet.values.occupancy import DMA, TURN_END, Limit, Limited, Occupancy, Stretch, Turns
from ratchet.values.place import Code, Place

MOST = 24
"""Stretches of a kernel."""
LINES = 2
"""Source lines that are named of each."""
_ALIKE = 2e-4
"""Stretches below this distance are alike: of 1, where the unit is in use in one half of the time and not at all in the
other."""
_ELSEWHERE = 4.0
"""How much more unlike stretches of two blocks are."""


def occupancy(
    kernel: str,
    listing: Listing,
    costs: Costs,
    *,
    counts: Sequence[int],
    waits: Mapping[Waited, int],
    matrix_units: int,
) -> Occupancy:
    """Occupancy of one kernel in all its executions.

    Args:
        kernel: its name.
        listing: its program.
        costs: of the listing.
        counts: executions of its blocks.
        waits: cycles that it waited.
        matrix_units: of a core.
    """
    waited = np.zeros(len(costs.empty), np.int64)
    for wait, cycles in waits.items():
        waited[wait.address] += cycles
    times = executed(costs, counts).times
    program = Program(costs=costs, times=times, waited=waited, matrix_units=matrix_units)
    return _Kernel(name=kernel, listing=listing, counts=counts, program=program).occupancy()


@dataclass(frozen=True, kw_only=True)
class _Loop:
    place: Place
    begin: int
    end: int
    turns: int


@dataclass(frozen=True, kw_only=True, eq=False)
class _Kernel:
    name: str
    listing: Listing
    counts: Sequence[int]
    program: Program

    def occupancy(self) -> Occupancy:
        pieces, spans = self.program.pieces, list(_alike(self.program.pieces, self._slot))
        return Occupancy(
            kernel=self.name,
            unit=self.program.unit,
            cycles=int(pieces.bundles.sum() + pieces.waited.sum()),
            stretches=tuple(self._stretch(np.arange(*span)) for span in spans),
            limits=self._limits(),
            turns=self._turns(),
        )

    @property
    def _slot(self) -> int:
        return SLOTS.index(self.program.unit)

    def _stretch(self, group: np.ndarray) -> Stretch:
        pieces, program = self.program.pieces, self.program
        begin, end = int(pieces.begins[group[0]]), int(pieces.ends[group[-1]])
        times = program.times[begin:end]
        issued = (times @ program.costs.slots[begin:end]).tolist()
        used = pieces.used[group].sum(axis=0).round().astype(np.int64).tolist()
        waits = pieces.stalls[group].sum(axis=0).round().astype(np.int64).tolist()
        return Stretch(
            begin=begin,
            end=end,
            executions=int(times.max()),
            bundles=int(times.sum()),
            empty=int(pieces.empty[group].sum()),
            wait_cycles=int(pieces.waited[group].sum()),
            busy=used[self._slot],
            products=int(times @ self._products[begin:end]),
            weights=int(times @ self._weights[begin:end]),
            issues={slot: number for slot, number in zip(SLOTS, issued, strict=True) if number},
            used={slot: number for slot, number in zip(SLOTS, used, strict=True) if number},
            waits={unit: number for unit, number in zip(program.waits, waits, strict=True) if number},
            limit=self._limit(group),
            turn_end=bool(pieces.bundles[group] @ (2.0 * pieces.turn_end[group] - 1) > 0),
            lines=self._lines(group),
        )

    @cached_property
    def _products(self) -> np.ndarray:
        return self._named("vmatmul")

    @cached_property
    def _weights(self) -> np.ndarray:
        return self._named("vmatpush")

    def _named(self, head: str) -> np.ndarray:
        """Instructions per bundle whose opcode begins so."""
        columns = self.listing.columns
        chosen = columns.of_opcodes(opcode.startswith(head) for opcode in columns.opcodes).astype(bool)
        return np.bincount(columns.bundle[chosen], minlength=len(self.program.times))

    def _limit(self, group: np.ndarray) -> Limit:
        """The one under which the unit loses most; the unit itself where it is in use nearly all the time."""
        pieces = self.program.pieces
        busy, bundles, waited = pieces.used[group, self._slot], pieces.bundles[group], int(pieces.waited[group].sum())
        own = Limit(unit=self.program.unit, empty=False)
        if busy.sum() >= FULL * (bundles.sum() + waited):
            return own
        lost = Counter({Limit(unit=DMA, empty=False): float(waited)})
        for number, cycles in zip(group.tolist(), (bundles - busy).tolist(), strict=True):
            lost[pieces.limits[number]] += cycles
        return max(lost, key=lambda limit: lost[limit])

    def _lines(self, group: np.ndarray) -> tuple[Place, ...]:
        """Those that issue most in some pieces."""
        issued = self._issued[group].sum(axis=0)
        order = np.argsort(-issued, kind="stable")[:LINES].tolist()
        return tuple(self.program.costs.places[number] for number in order if issued[number])

    @cached_property
    def _issued(self) -> np.ndarray:
        """Executed instructions of each piece by place."""
        costs, pieces = self.program.costs, self.program.pieces
        bundle, place, _ = costs.issued
        piece, many = pieces.of(bundle), len(costs.places)
        there = piece >= 0
        weights = self.program.times[bundle[there]]
        sums = np.bincount(piece[there] * many + place[there], weights=weights, minlength=len(pieces) * many)
        return sums.reshape(len(pieces), many)

    def _limits(self) -> tuple[Limited, ...]:
        pieces, groups = self.program.pieces, dict[Limit, list[int]]()
        for number, (limit, turn_end) in enumerate(zip(pieces.limits, pieces.turn_end.tolist(), strict=True)):
            groups.setdefault(Limit(unit=TURN_END, empty=False) if turn_end else limit, []).append(number)
        found = [
            Limited(
                limit=limit,
                cycles=int(pieces.bundles[group].sum()),
                busy=round(float(pieces.used[group, self._slot].sum())),
                place=next(iter(self._lines(np.array(group))), None),
            )
            for limit, group in groups.items()
        ]
        waited = int(pieces.waited.sum())
        if waited:
            place = self.program.costs.waits.get(int(self.program.waited.argmax()))
            found.append(Limited(limit=Limit(unit=DMA, empty=False), cycles=waited, busy=0, place=place))
        return tuple(sorted(found, key=lambda one: -one.cycles))

    def _turns(self) -> tuple[Turns, ...]:
        pieces, loops = self.program.pieces, self._loops()
        spent = Counter[int]()
        ends = pieces.turn_end
        for begin, bundles in zip(pieces.begins[ends].tolist(), pieces.bundles[ends].tolist(), strict=True):
            inside = (number for number, loop in enumerate(loops) if loop.begin <= begin < loop.end)
            spent[next(inside, -1)] += bundles
        found = [
            Turns(place=loop.place, begin=loop.begin, end=loop.end, turns=loop.turns, cycles=spent[number])
            for number, loop in enumerate(loops)
            if spent[number]
        ]
        return tuple(sorted(found, key=lambda one: -one.cycles))

    def _loops(self) -> list[_Loop]:
        """Innermost first."""
        columns, found = self.listing.columns, dict[int, _Loop]()
        blocks = self.program.costs.blocks
        for number, target in columns.branches.items():
            address = int(columns.bundle[number])
            if target > address:
                continue
            # Blocks share delay slots; the one that begins last has the branch.
            block = int(np.searchsorted(blocks[:, 0], address, "right")) - 1
            source = columns.every_notes[columns.notes[number]].source
            before = found.get(target)
            found[target] = _Loop(
                place=line_of(source) if source else Code.PIPELINE,
                begin=target,
                end=max(int(blocks[block, 1]), before.end if before else 0),
                turns=self.counts[block] + (before.turns if before else 0),
            )
        return sorted(found.values(), key=lambda loop: loop.end - loop.begin)


def _alike(pieces: Pieces, slot: int) -> Iterator[tuple[int, int]]:
    """Stretches, as the first and last (exclusive) of their pieces; ``slot`` is that of the kernel's unit."""
    size = len(pieces)
    weight = (pieces.bundles + pieces.waited).astype(float)
    share = np.column_stack([pieces.used, pieces.empty, pieces.waited]) / weight[:, None]
    other = np.delete(share, slot, axis=1) * (1.0 - np.minimum(1.0, share[:, [slot]]))
    means = np.column_stack([np.minimum(1.0, share[:, slot]), pieces.turn_end, other])
    every, begins, blocks = max(1.0, weight.sum()), np.arange(size), pieces.blocks.copy()
    while len(begins) > 1:
        apart = np.square(np.diff(means, axis=0)).sum(axis=1) * np.where(np.diff(blocks), _ELSEWHERE, 1.0)
        cost = 4 * apart * weight[:-1] * weight[1:] / (weight[:-1] + weight[1:]) / every
        least = int(cost.argmin())
        if cost[least] > _ALIKE and len(begins) <= MOST:
            break
        both = weight[least : least + 2]
        means[least] = (both[0] * means[least] + both[1] * means[least + 1]) / both.sum()
        weight[least] = both.sum()
        blocks[least] = blocks[least + (both[1] > both[0])]
        means, weight, blocks, begins = (np.delete(a, least + 1, axis=0) for a in (means, weight, blocks, begins))
    yield from pairwise([*begins.tolist(), size])
