"""Shares out the bundles of one listing: every cycle to source lines and units, to the last fraction.

The rule. A bundle is one cycle, and each of its instructions that takes an issue slot gets an equal share of it,
whatever its line. (Instructions without a slot cost nothing; where a bundle has no others, they share.) An empty bundle
goes to whoever :func:`ratchet.account.stalls.stalls` blames. Shares are kept as fractions, and made whole cycles only
when a region is added up, by the largest remainders, so that the parts are never a cycle more or less than the whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import NamedTuple, TypeVar

import numpy as np

from ratchet.account.lines import places
from ratchet.account.stalls import stalls
from ratchet.chips.units import CAPACITY, SLOTS, is_vector_code, mxu_cycles, slots, unit_number, xlu_cycles
from ratchet.dump.instruction import Instruction
from ratchet.dump.listing import Listing
from ratchet.values.place import Place
from ratchet.values.status import Refusal, Status

Key = TypeVar("Key", bound=Hashable)


class Activity(Enum):
    """What a cycle goes to."""

    ISSUE = "issue"
    STALL = "stall"
    WAIT = "wait"
    DELAY = "delay"


class Cell(NamedTuple):
    """A place and what is done there."""

    place: Place
    activity: Activity
    unit: str = ""
    """The unit that issues or is waited for; ``""`` for a wait and a delay."""


ISSUE_SLOTS = sum(capacity for slot, capacity in CAPACITY.items() if slot not in ("FILL", "SPILL"))
"""Slots of one bundle. Fills and spills are loads and stores, counted once more for themselves."""

_COLUMN = {slot: i for i, slot in enumerate(SLOTS)}


def whole(shares: Mapping[Key, Fraction], total: int) -> dict[Key, int]:
    """Rounds shares to whole numbers that sum to ``total``, each to one of its two neighbours.

    The largest remainders are rounded up; equal ones in the order of the mapping.

    Raises:
        ValueError: if the shares do not sum to ``total``.
    """
    if sum(shares.values()) != total:
        raise ValueError(f"shares sum to {sum(shares.values())}, not to {total}")
    rounded = {key: int(share // 1) for key, share in shares.items()}
    missing = total - sum(rounded.values())
    for key in sorted(shares, key=lambda key: -(shares[key] % 1))[:missing]:
        rounded[key] += 1
    return rounded


_Use = tuple[str, tuple[int, ...], int, int, int]
"""The part that an instruction is booked under, its slots as columns, cycles of a matrix unit and of a cross-lane unit,
and which of those."""


class _Uses:
    """What instructions occupy, looked up once per opcode."""

    def __init__(self, listing: Listing, compiler: str) -> None:
        self._listing = listing
        self._compiler = compiler
        self._known: dict[tuple[str, bool], _Use | None] = {}

    def of(self, instruction: Instruction, address: int) -> _Use | None:
        """None for an instruction that takes no slot. Raises Refusal for an opcode whose unit is not known."""
        opcode = instruction.opcode
        if opcode.startswith("int_to_ptr"):  # the only one whose slot its registers decide
            return self._find(instruction, address)
        key = (opcode, instruction.form.spill)
        if key not in self._known:
            self._known[key] = self._find(instruction, address)
        return self._known[key]

    def _find(self, instruction: Instruction, address: int) -> _Use | None:
        opcode = instruction.opcode
        classes = slots(opcode, spill=instruction.form.spill, moves=instruction.moves)
        products = mxu_cycles(opcode)
        if classes is None or products is None:
            raise Refusal(
                Status.SCHEDULE_UNKNOWN,
                f"{self._listing.where(address)} ({self._compiler}): "
                f"`{str(instruction)[:140]}`: which unit this occupies is not known. "
                "The schedule machine does not guess: report it, or write the kernel without it.",
            )
        if not classes:
            return None
        crossing = xlu_cycles(opcode) if classes[0] == "XLU" else 0
        unit = classes[-1] if is_vector_code(opcode) else "SALU"  # the last says most: EUP, FILL, SPILL
        return unit, tuple(_COLUMN[slot] for slot in classes), products, crossing, unit_number(opcode)


class Shares:
    """What is known of one listing without running it."""

    def __init__(
        self,
        listing: Listing,
        blocks: Sequence[tuple[int, int]],
        *,
        compiler: str,
        elsewhere: Place | None,
        delay_slots: int,
    ) -> None:
        """Reads a listing once.

        Args:
            listing: the program.
            blocks: first and last address (exclusive) of its basic blocks.
            compiler: version, for messages.
            elsewhere: where all of it belongs, for what is no kernel.
            delay_slots: bundles behind a branch that always execute.

        Raises:
            Refusal: SCHEDULE_UNKNOWN for an opcode whose unit is not known.
        """
        bundles = listing.bundles
        self._blocks = blocks
        self.where = places(bundles, elsewhere)
        """Place of every instruction, bundle by bundle."""
        self.slots = np.zeros((len(bundles), len(SLOTS)), np.int64)
        """Instructions per bundle and slot class."""
        self.mxu = np.zeros((len(bundles), 8), np.int64)
        """Cycles for which the products of a bundle keep each matrix unit busy."""
        self.xlu = np.zeros((len(bundles), 8), np.int64)
        """The same for the cross-lane units."""
        self.empty = np.array([not bundle for bundle in bundles], bool)
        self._cells: dict[Cell, int] = {}
        self._places: dict[Place, int] = {}
        shared: list[tuple[int, int, int]] = []  # address, cell, number of sharers
        issued: list[tuple[int, int, int]] = []  # address, place, slot
        uses = _Uses(listing, compiler)
        for address, bundle in enumerate(bundles):
            sharers = []
            for instruction, place in zip(bundle, self.where[address], strict=True):
                use = uses.of(instruction, address)
                if use is None:
                    continue
                unit, columns, products, crossing, which = use
                if products:
                    self.mxu[address, which] += products
                elif crossing:
                    self.xlu[address, which] += crossing
                sharers.append(self._cell(place, Activity.ISSUE, unit))
                number = self._places.setdefault(place, len(self._places))
                for column in columns:
                    issued.append((address, number, column))
            if bundle and not sharers:
                sharers = [self._cell(place, Activity.ISSUE, "SALU") for place in self.where[address]]
            shared += [(address, cell, len(sharers)) for cell in sharers]
        for stall in stalls(bundles, blocks, self.where, delay_slots):
            cells = [self._cell(place, Activity.STALL, unit) for place, unit in stall.blamed]
            shared += [(a, cell, len(cells)) for a in range(stall.start, stall.end) for cell in cells]
        self._shared = np.array(shared, np.int64).reshape(-1, 3)
        self._issued = np.array(issued, np.int64).reshape(-1, 3)
        np.add.at(self.slots, (self._issued[:, 0], self._issued[:, 2]), 1)

    def _cell(self, place: Place, activity: Activity, unit: str) -> int:
        return self._cells.setdefault(Cell(place, activity, unit), len(self._cells))

    def times(self, counts: Sequence[int]) -> np.ndarray:
        """Executions per bundle, from executions per block."""
        steps = np.zeros(len(self.empty) + 1, np.int64)
        for (start, end), count in zip(self._blocks, counts, strict=True):
            steps[start] += count
            steps[end] -= count
        return np.cumsum(steps[:-1])

    def slot_issues(self, times: np.ndarray) -> dict[str, int]:
        """Executed instructions per slot."""
        return dict(zip(SLOTS, (int(n) for n in times @ self.slots), strict=True))

    def empty_slots(self, times: np.ndarray) -> dict[Cell, Fraction]:
        """Issue slots left empty, shared out as the cycles of their bundles are."""
        used = self.slots.sum(axis=1) - self.slots[:, _COLUMN["FILL"]] - self.slots[:, _COLUMN["SPILL"]]
        return self.cycles(times * (ISSUE_SLOTS - used))

    def cycles(self, times: np.ndarray) -> dict[Cell, Fraction]:
        """Cycles per cell, exact; they sum to ``times.sum()``."""
        cycles = dict.fromkeys(self._cells, Fraction(0))
        keys = list(self._cells)
        for sharers in np.unique(self._shared[:, 2]):
            rows = self._shared[self._shared[:, 2] == sharers]
            # Sums of whole numbers far below 2**53: exact in doubles, which is what bincount adds in.
            for cell, total in enumerate(np.bincount(rows[:, 1], weights=times[rows[:, 0]])):
                if total:
                    cycles[keys[cell]] += Fraction(int(total), int(sharers))
        return {cell: share for cell, share in cycles.items() if share}

    def issues(self, times: np.ndarray) -> dict[Place, dict[str, int]]:
        """Executed instructions per place and slot."""
        width = len(SLOTS)
        rows = self._issued
        totals = np.bincount(
            rows[:, 1] * width + rows[:, 2], weights=times[rows[:, 0]], minlength=len(self._places) * width
        ).reshape(-1, width)
        return {
            place: {slot: int(n) for slot, n in zip(SLOTS, totals[number], strict=True) if n}
            for place, number in self._places.items()
        }
