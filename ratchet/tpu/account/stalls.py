"""What each empty bundle of a listing waits for. Pure.

An empty bundle is a cycle in which the next bundle cannot issue yet. What that one waits for is not written down, but
leaves a trace: the compiler issues it as soon as it can. So an operand that is used at the shortest distance from its
making that this listing ever shows for that pair of opcodes is what was waited for, and likewise an issue to a unit at
the shortest distance from the one before, and a result that is taken from a matrix unit behind its product. Where
nothing is at its shortest distance (or a pair occurs only once, which proves nothing) the empty bundle is blamed on the
bundle that issues next, waiting for ``?``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ratchet.tpu.account.places import Places
from ratchet.tpu.chips.units import named_unit, slots
from ratchet.tpu.dump.columns import Columns, numbered, ranges
from ratchet.tpu.dump.instruction import Instruction
from ratchet.values.place import Code, Place

UNKNOWN = "?"
"""Unit of a stall for which no instruction can be named."""
BRANCH = "branch"
"""Unit of a stall in the delay slots of a branch."""

_EVIDENCE = 3
"""How often a shortest distance must be seen before it says anything."""


class Stall(NamedTuple):
    """What empty bundles wait for: shares of them per place, and the unit."""

    start: int
    end: int
    blamed: tuple[tuple[Place, str], ...]
    """Who is blamed, in equal shares; more than one only where the next bundle is blamed."""


class _Run(NamedTuple):
    """Empty bundles one after the other."""

    start: int
    end: int
    block: int
    follows: int | None
    """The next bundle, if it is of the same block."""


_Bound = tuple[int, int, int]
"""A distance that is the shortest of its kind, how often that was seen, and the earlier instruction."""


def stalls(columns: Columns, blocks: Sequence[tuple[int, int]], places: Places, delay_slots: int) -> list[Stall]:
    """Every run of empty bundles and who is blamed for it.

    Args:
        columns: the listing.
        blocks: first and last address (exclusive) of the basic blocks: distances across branches mean nothing.
        places: of :func:`ratchet.tpu.account.places.places`.
        delay_slots: bundles behind a branch that always execute.
    """
    runs = _empty(columns, blocks)
    waiting = _waiting(_Order(columns, blocks), runs)
    branches = {int(columns.bundle[number]): number for number in reversed(columns.with_opcode("sbr.rel".__eq__))}
    blamed: list[Stall] = []
    for run in runs:
        bound = [] if run.follows is None else [w for w in waiting.get(run.follows, ()) if w[0] > run.end - run.start]
        # A branch so far in front of them has all of them, and nothing else, in its delay slots.
        reach = delay_slots if run.follows is None else delay_slots + 1 - (run.follows - run.start)
        branch = next((branches[run.start - n] for n in range(1, reach + 1) if run.start - n in branches), None)
        if branch is not None:
            blame: tuple[tuple[Place, str], ...] = ((places.of(branch), BRANCH),)
        elif run.follows is None:
            blame = ((Code.PIPELINE, UNKNOWN),)
        elif bound:
            # Several may bind at once. The longest is named: the compiler may put short ones off until they just fit.
            _, _, earlier = max(bound)
            blame = ((places.of(earlier), _unit_of(columns.instruction(earlier)) or UNKNOWN),)
        else:
            blame = tuple((places.of(number), UNKNOWN) for number in columns.of_bundle(run.follows))
        blamed.append(Stall(run.start, run.end, blame))
    return blamed


def _unit_of(instruction: Instruction) -> str:
    """The unit that an instruction is booked under: its slot class, with spills and fills apart."""
    classes = slots(instruction.opcode, spill=instruction.form.spill, moves=instruction.moves) or ("",)
    return next((name for name in ("SPILL", "FILL", "EUP") if name in classes), classes[0])


def _empty(columns: Columns, blocks: Sequence[tuple[int, int]]) -> list[_Run]:
    """Runs of empty bundles, block by block."""
    issuing = np.flatnonzero(np.diff(columns.first))
    runs: list[_Run] = []
    for number, (first, last) in enumerate(blocks):
        low, high = np.searchsorted(issuing, (first, last))
        edges = np.concatenate(([first - 1], issuing[low:high], [last]))
        gaps = np.flatnonzero(np.diff(edges) > 1)
        for start, end in zip((edges[gaps] + 1).tolist(), edges[gaps + 1].tolist(), strict=True):
            runs.append(_Run(start, end, number, end if end < last else None))
    return runs


def _waiting(order: _Order, runs: Sequence[_Run]) -> dict[int, list[_Bound]]:
    """What the bundles behind empty ones may have waited for, by address."""
    pair, cycles, earlier, later = order.distances()
    if not len(pair):
        return {}
    shortest = np.full(int(pair.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, pair, cycles)
    is_shortest = cycles == shortest[pair]
    seen = np.bincount(pair[is_shortest], minlength=len(shortest))
    behind = np.full(len(order.columns.first), -1)
    for run in runs:
        if run.follows is not None:
            behind[run.follows] = run.block
    rows = np.flatnonzero(
        is_shortest & (seen[pair] >= _EVIDENCE) & (behind[order.address[later]] == order.block[later])
    )
    waiting: dict[int, list[_Bound]] = {}
    found = (order.address[later[rows]], cycles[rows], seen[pair[rows]], order.instruction[earlier[rows]])
    for address, *bound in zip(*(column.tolist() for column in found), strict=True):
        waiting.setdefault(address, []).append((bound[0], bound[1], bound[2]))
    return waiting


_Pairs = tuple[np.ndarray, np.ndarray]
"""Places of the earlier and of the later instructions."""


class _Order:
    """The instructions in the order of the basic blocks, which share bundles: delay slots are also where others go.

    A place is one in this order.
    """

    def __init__(self, columns: Columns, blocks: Sequence[tuple[int, int]]) -> None:
        self.columns = columns
        first, last = np.array(blocks, np.int64).reshape(-1, 2).T
        sizes = columns.first[last] - columns.first[first]
        self.instruction = ranges(columns.first[first], sizes)
        """Number of each in the columns."""
        self.address = columns.bundle[self.instruction]
        self.block = np.repeat(np.arange(len(blocks)), sizes)
        begins = np.cumsum(sizes) - sizes
        self._block_begin = begins[self.block]
        """Place of the first one of the same block."""
        self._bundle_begin = np.arange(len(self.block)) - (self.instruction - columns.first[self.address])
        """The same for the bundle: those before it issued earlier."""
        self._blocks = len(blocks)

    def distances(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """All distances within a block: the kind of the pair, cycles, and the two places.

        An instruction may wait for those that made what it reads, for the last one that was given to its unit, and,
        where it takes a result from a matrix unit, for the product that it is the result of.
        """
        kinds, names = numbered([_kind(opcode) for opcode in self.columns.opcodes])
        kind, size = kinds[self.columns.opcode][self.instruction], len(names)
        pairs = [(kind[earlier] * size + kind[later], earlier, later) for earlier, later in [self._made()]]
        pairs += [((size + kind[earlier]) * size + kind[later], earlier, later) for earlier, later in self._issued()]
        # All products are alike here: their kinds differ in what they do to weights, not in how long they take.
        pairs += [(2 * size * size + kind[later], earlier, later) for earlier, later in self._products()]
        pair, before, behind = (np.concatenate(column) for column in zip(*pairs, strict=True))
        return pair, self.address[behind] - self.address[before], before, behind

    def _made(self) -> _Pairs:
        """What made last, in an earlier bundle of the block, what an instruction reads; and that instruction."""
        columns, size = self.columns, len(self.instruction)
        begins = columns.first_read[self.instruction]
        counts = columns.first_read[self.instruction + 1] - begins
        value = columns.reads[ranges(begins, counts)]
        reader = np.repeat(np.arange(size), counts)
        value, reader = value[value >= 0], reader[value >= 0]
        # Makers by value and place: the last of a value's before the reader's bundle is in front of that one's place.
        makers = np.sort(columns.makes[self.instruction] * size + np.arange(size))
        at = np.searchsorted(makers, value * size + self._bundle_begin[reader]) - 1
        maker = makers[at] - value * size
        found = (at >= 0) & (maker >= self._block_begin[reader])
        return maker[found], reader[found]

    def _issued(self) -> Iterator[_Pairs]:
        """What was given to a unit last, in an earlier bundle of the block.

        Weights are pushed beside the products, by a port of their own, and wait for both.
        """
        for unit in self._units():
            ports = [self._of(unit, "", "vpop", "vmatpush"), self._of(unit, "vmatpush")]
            later = np.concatenate(ports)
            for port in filter(len, ports):
                at = np.searchsorted(port, self._bundle_begin[later]) - 1
                earlier = port[at]
                found = (at >= 0) & (earlier >= self._block_begin[later])
                yield earlier[found], later[found]

    def _products(self) -> Iterator[_Pairs]:
        """Products of a matrix unit and what takes their results, which leave it in the order of issue."""
        reads_nothing = np.diff(self.columns.first_read)[self.instruction] == 0
        for unit in self._units():
            if not unit.startswith("mxu"):
                continue
            products, results = self._of(unit, "vmatmul"), self._of(unit, "vpop")
            results = results[reads_nothing[results]]
            pushed, popped = (np.bincount(self.block[own], minlength=self._blocks) for own in (products, results))
            each = popped // np.maximum(1, pushed)
            # Else a product and its results are in different blocks.
            whole = (pushed > 0) & (each > 0) & (each * pushed == popped)
            block = self.block[results]
            number = np.arange(len(results)) - (np.cumsum(popped) - popped)[block]
            kept = whole[block]
            block, number, later = block[kept], number[kept], results[kept]
            yield products[(np.cumsum(pushed) - pushed)[block] + number // each[block]], later

    def _units(self) -> Iterator[str]:
        """The matrix and cross-lane units that are named, in the order of their first use."""
        return filter(None, dict.fromkeys(map(named_unit, self.columns.opcodes)))

    def _of(self, unit: str, head: str, *others: str) -> np.ndarray:
        """Places of what names a unit and begins so, and not as the ``others``."""
        chosen = (
            named_unit(opcode) == unit and opcode.startswith(head) and not opcode.startswith(others)
            for opcode in self.columns.opcodes
        )
        return np.flatnonzero(self.columns.of_opcodes(chosen)[self.instruction])


def _kind(opcode: str) -> str:
    """An opcode without the number of its unit: those of a kind take the same time on all units."""
    unit = named_unit(opcode)
    return opcode.replace(unit, unit[:-1]) if unit else opcode
