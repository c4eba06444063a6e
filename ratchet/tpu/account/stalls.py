"""What each empty bundle of a listing waits for. Pure.

An empty bundle is a cycle in which the next bundle cannot issue yet. What that one waits for is not written down, but
leaves a trace: the compiler issues it as soon as it can. So every dependence of the next bundle that reaches back over
the empty ones (what made its operands, what was given to its units before, and the product whose result it takes) is
held against the shortest distance that the listing ever shows for that pair of opcodes. One that is at its shortest
was waited for: the longest of them, those first whose distance was seen more than a few times. Where none is at its
shortest, the one that is least longer is blamed: the compiler put that bundle off for something behind it. A bundle
without any such dependence waits for the order of the program (``OTHER``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ratchet.tpu.account.places import Places
from ratchet.tpu.chips.units import named_unit, slots
from ratchet.tpu.dump.columns import Columns, numbered, ranges
from ratchet.tpu.dump.instruction import Access, Form, Instruction
from ratchet.values.blame import BRANCH, OTHER, RESULTS, STORES, WEIGHTS
from ratchet.values.place import Code, Place

_EVIDENCE = 3
"""From so many times on that a shortest distance was seen, it comes before those that were not."""


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


class _Bound(NamedTuple):
    """A dependence of the bundle behind empty ones."""

    slack: int
    """By how many cycles it is longer than the shortest of its kind."""
    seen: int
    """How often the shortest one was seen."""
    cycles: int
    earlier: int
    """The instruction that is waited for."""
    unit: str
    """What is waited for, where that is no unit that the earlier instruction is booked under."""


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
        # A branch so far in front of them has all of them, and nothing else, in its delay slots.
        reach = delay_slots if run.follows is None else delay_slots + 1 - (run.follows - run.start)
        branch = next((branches[run.start - n] for n in range(1, reach + 1) if run.start - n in branches), None)
        bound = (
            [] if run.follows is None else [w for w in waiting.get(run.follows, ()) if w.cycles > run.end - run.start]
        )
        if branch is not None:
            blame: tuple[tuple[Place, str], ...] = ((places.of(branch), BRANCH),)
        elif bound:
            # Several may bind at once. The longest is named: the compiler may put short ones off until they just fit.
            first = min(bound, key=lambda one: (one.slack, one.seen < _EVIDENCE, -one.cycles))
            unit = first.unit or _unit_of(columns.instruction(first.earlier)) or OTHER
            blame = ((places.of(first.earlier), unit),)
        else:
            near = columns.of_bundle(run.start - 1 if run.follows is None else run.follows)
            blame = tuple((places.of(number), OTHER) for number in near) or ((Code.PIPELINE, OTHER),)
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
    pair, maker, cycles, earlier, later, why = order.distances()
    if not len(pair):
        return {}
    shortest = np.full(int(pair.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, pair, cycles)
    slack = cycles - shortest[pair]
    seen = np.bincount(pair[slack == 0], minlength=len(shortest))
    # A pair that is rare proves nothing by itself: there the earlier opcode is held against all that wait for it.
    soonest = np.full(int(maker.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(soonest, maker, cycles)
    slack = np.where(seen[pair] < _EVIDENCE, cycles - soonest[maker], slack)
    behind = np.full(len(order.columns.first), -1)
    for run in runs:
        if run.follows is not None:
            behind[run.follows] = run.block
    rows = np.flatnonzero(behind[order.address[later]] == order.block[later])
    waiting: dict[int, list[_Bound]] = {}
    found = (slack[rows], seen[pair[rows]], cycles[rows], order.instruction[earlier[rows]], why[rows])
    for address, *bound in zip(*(column.tolist() for column in (order.address[later[rows]], *found)), strict=True):
        longer, times, distance, instruction, which = bound
        waiting.setdefault(address, []).append(_Bound(longer, times, distance, instruction, _WHY[which]))
    return waiting


_WHY = ("", WEIGHTS, RESULTS, STORES)
"""Kinds of dependences by what is waited for."""
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

    def distances(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """All distances within a block: the kinds of the pair and of the earlier one, cycles, the two places, and which
        of ``_WHY``.

        An instruction may wait for those that made what it reads, for the last one that was given to its unit, and,
        where it takes a result from a matrix unit, for the product that it is the result of.
        """
        kinds, names = numbered([_kind(opcode) for opcode in self.columns.opcodes])
        kind, size = kinds[self.columns.opcode][self.instruction], len(names)
        weights = np.array([_is_weights(name) for name in names], bool)[kind]
        relations = [
            (0, [self._made()], ""),
            (1, self._issued(), WEIGHTS),
            (2, self._products(), RESULTS),
            (3, self._transposed(), ""),
            (4, [self._stored()], STORES),
        ]
        found = []
        for relation, pairs, unit in relations:
            for earlier, later in pairs:
                # All products are alike: their kinds differ in what they do to weights, not in how long they take.
                maker = relation * size + (kind[earlier] if unit != RESULTS else np.zeros_like(earlier))
                named = weights[earlier] | weights[later] if unit == WEIGHTS else np.ones(len(earlier), bool)
                why = np.where(named, _WHY.index(unit), 0)
                found.append((maker * size + kind[later], maker, earlier, later, why))
        pair, maker, before, behind, why = (np.concatenate(column) for column in zip(*found, strict=True))
        return pair, maker, self.address[behind] - self.address[before], before, behind, why

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
                yield self._last(port, later)

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

    def _transposed(self) -> Iterator[_Pairs]:
        """The last transpose of a cross-lane unit before what takes a row of its result."""
        reads_nothing = np.diff(self.columns.first_read)[self.instruction] == 0
        for unit in self._units():
            transposes, rows = self._of(unit, "vxpose"), self._of(unit, "vpop")
            yield self._last(transposes, rows[reads_nothing[rows]])

    def _stored(self) -> _Pairs:
        """The last store of vectors to what is loaded: the same allocation or base register, and offset."""
        columns = self.columns
        places = [_access(form) for form in columns.forms]
        number, _ = numbered([place and place[:2] for place in places])
        based = np.array([place is not None and place[2] for place in places], bool)[columns.form]
        base = np.full(len(columns), -1)
        base[based] = columns.reads[columns.first_read[:-1][based]]
        key = number[columns.form] * (len(columns) + 1) + base + 1
        reaches = np.array([place is not None for place in places], bool)[columns.form]
        keys, size = key[self.instruction], len(self.instruction) + 1
        loads, stores = (
            np.flatnonzero(
                (columns.of_opcodes(one.startswith(head) for one in columns.opcodes) & reaches)[self.instruction]
            )
            for head in ("vld", "vst")
        )
        if not len(loads) or not len(stores):
            return loads[:0], loads[:0]
        made = np.sort(keys[stores] * size + stores)
        at = np.searchsorted(made, keys[loads] * size + self._bundle_begin[loads]) - 1
        earlier = made[at] - keys[loads] * size
        found = (at >= 0) & (earlier >= self._block_begin[loads])
        return earlier[found], loads[found]

    def _last(self, earlier: np.ndarray, later: np.ndarray) -> _Pairs:
        """For each of ``later`` the last of ``earlier`` in an earlier bundle of the same block, where there is one."""
        if not len(earlier):
            return earlier, later[:0]
        at = np.searchsorted(earlier, self._bundle_begin[later]) - 1
        last = earlier[at]
        found = (at >= 0) & (last >= self._block_begin[later])
        return last[found], later[found]

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


def _is_weights(opcode: str) -> bool:
    """Whether an opcode gives weights to a matrix unit, or makes it take them."""
    return opcode.startswith(("vmatpush", "vmatprep", "vdwg"))


def _access(form: Form) -> tuple[str, int, bool] | None:
    """The vector memory that a form reaches: allocation, offset, and whether a register is added, its first one."""
    for _, value in form.operands:
        if isinstance(value, Access) and value.space == "vmem":
            return value.address.allocation, value.address.offset, bool(value.address.registers)
    return None
