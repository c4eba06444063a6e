"""Shares out the bundles of one listing: every cycle to source lines and units, to the last fraction.

The rule. A bundle is one cycle, and each of its instructions that takes an issue slot gets an equal share of it,
whatever its line. (Instructions without a slot cost nothing; where a bundle has no others, they share.) An empty bundle
goes to whoever :func:`ratchet.tpu.account.stalls.stalls` blames. Shares are kept as fractions, and made whole cycles
only when a region is added up, by the largest remainders, so that the parts are never a cycle more or less than the
whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from math import lcm
from typing import NamedTuple, TypeVar

import numpy as np

from ratchet.tpu.account.lines import places
from ratchet.tpu.account.stalls import Stall, stalls
from ratchet.tpu.chips.units import CAPACITY, SLOTS, is_vector_code, mxu_cycles, slots, unit_number, xlu_cycles
from ratchet.tpu.dump.columns import Columns, numbered, ranges
from ratchet.tpu.dump.instruction import Instruction
from ratchet.tpu.dump.listing import Listing
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
_UNITS = 8
"""Units of a kind that an opcode may name, and more."""


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


class _Use(NamedTuple):
    """What an instruction occupies."""

    unit: str
    """The part that it is booked under."""
    columns: tuple[int, ...]
    """Its slots."""
    products: int = 0
    """Cycles of a matrix unit."""
    crossing: int = 0
    """Cycles of a cross-lane unit."""
    which: int = 0
    """Which of those units."""


_NOTHING = _Use("", ())
"""Of an instruction that takes no slot."""


class _Uses:
    """What the instructions of a listing occupy: the same for all of a form but pointers, which may be moves."""

    def __init__(self, listing: Listing, columns: Columns, compiler: str) -> None:
        """Raises Refusal SCHEDULE_UNKNOWN for an opcode whose unit is not known."""
        self._listing = listing
        self._compiler = compiler
        _, first = np.unique(columns.form, return_index=True)
        pointer = columns.of_opcodes(opcode.startswith("int_to_ptr") for opcode in columns.opcodes).astype(bool)
        of_form = [_NOTHING] * len(columns.forms)
        known: dict[tuple[str, bool], _Use] = {}
        uses: dict[int, _Use] = {}
        for number in sorted({*first.tolist(), *np.flatnonzero(pointer).tolist()}):
            instruction = columns.instruction(number)
            key = instruction.opcode, instruction.form.spill
            if pointer[number]:
                uses[number] = self._find(instruction, int(columns.bundle[number]))
                continue
            if key not in known:
                known[key] = self._find(instruction, int(columns.bundle[number]))
            of_form[columns.form[number]] = known[key]
        distinct, self.all = numbered([*of_form, *uses.values()])
        self.number = distinct[columns.form]
        """Per instruction, which of ``all``."""
        self.number[list(uses)] = distinct[len(of_form) :]

    def column(self, field: str) -> np.ndarray:
        """A field of what each instruction occupies."""
        return np.array([getattr(use, field) for use in self.all], np.int64)[self.number]

    def _find(self, instruction: Instruction, address: int) -> _Use:
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
            return _NOTHING
        crossing = xlu_cycles(opcode) if classes[0] == "XLU" and not products else 0
        unit = classes[-1] if is_vector_code(opcode) else "SALU"  # the last says most: EUP, FILL, SPILL
        return _Use(unit, tuple(_COLUMN[slot] for slot in classes), products, crossing, unit_number(opcode))


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
        self._blocks = np.array(blocks, np.int64).reshape(-1, 2)
        columns = listing.columns
        self._columns = columns
        self._own = places(columns, elsewhere)
        size = len(listing.bundles)
        self.empty = np.diff(columns.first) == 0
        uses = _Uses(listing, columns, compiler)
        self.mxu, self.xlu = (
            _table(columns.bundle, uses.column("which"), uses.column(field), (size, _UNITS))
            for field in ("products", "crossing")
        )
        """Cycles for which the instructions of a bundle keep each matrix unit and each cross-lane unit busy."""
        self._places: list[Place] = []
        self._issued = self._issue(uses)
        """Bundle, place and slot of every instruction, once for each of its slots."""
        self.slots = _table(self._issued[0], self._issued[2], None, (size, len(SLOTS)))
        """Instructions per bundle and slot class."""
        self._cells: dict[Cell, int] = {}
        bundle, cell, sharers = self._share(uses, stalls(columns, blocks, self._own, delay_slots))
        most = int(sharers.max(initial=0)) + 1
        groups, self._group = np.unique(cell * most + sharers, return_inverse=True)
        self._shared = bundle
        """Bundle of every share, beside the number of its group: a cell, and among how many a bundle is shared."""
        self._groups = [divmod(group, most) for group in groups.tolist()]

    def where(self, address: int) -> list[Place]:
        """The place of every instruction of a bundle."""
        return [self._own.of(instruction) for instruction in self._columns.of_bundle(address)]

    def _issue(self, uses: _Uses) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        counts = np.array([len(use.columns) for use in uses.all], np.int64)
        columns = np.array([column for use in uses.all for column in use.columns], np.int64)
        each = counts[uses.number]
        issuing = np.flatnonzero(each)
        found, numbers = numbered(self._own.number[issuing].tolist())
        self._places = [self._own.known[number] for number in numbers]
        sizes = each[issuing]
        begins = (np.cumsum(counts) - counts)[uses.number[issuing]]
        return np.repeat(self._columns.bundle[issuing], sizes), np.repeat(found, sizes), columns[ranges(begins, sizes)]

    def _share(self, uses: _Uses, waits: Sequence[Stall]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Who shares in each bundle: the bundle, the cell, and with how many; fills ``_cells`` in this order."""
        bundle = self._columns.bundle
        units, names = numbered([use.unit or "SALU" for use in uses.all])
        takes = np.array([use is not _NOTHING for use in uses.all], bool)[uses.number]
        # Where no instruction of a bundle takes a slot, all share.
        takes |= np.bincount(bundle, weights=takes, minlength=len(self.empty))[bundle] == 0
        sharing = np.flatnonzero(takes)
        cells, keys = numbered((self._own.number[sharing] * len(names) + units[uses.number[sharing]]).tolist())
        for key in keys:
            place, unit = divmod(key, len(names))
            self._cells[Cell(self._own.known[place], Activity.ISSUE, names[unit])] = len(self._cells)
        shared = np.bincount(bundle[sharing], minlength=len(self.empty))
        rows = [(bundle[sharing], cells, shared[bundle[sharing]])]
        for wait in waits:
            own = [self._cells.setdefault(Cell(p, Activity.STALL, u), len(self._cells)) for p, u in wait.blamed]
            empty = np.repeat(np.arange(wait.start, wait.end), len(own))
            rows.append((empty, np.tile(own, wait.end - wait.start), np.full(len(empty), len(own))))
        bundles, every, sharers = (np.concatenate(column) for column in zip(*rows, strict=True))
        return bundles, every, sharers

    def times(self, counts: Sequence[int]) -> np.ndarray:
        """Executions per bundle, from executions per block."""
        steps = np.zeros(len(self.empty) + 1, np.int64)
        np.add.at(steps, self._blocks[:, 0], counts)
        np.subtract.at(steps, self._blocks[:, 1], counts)
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
        # Sums of whole numbers far below 2**53: exact in doubles, which is what bincount adds in.
        totals = np.bincount(self._group, weights=times[self._shared], minlength=len(self._groups))
        whole = lcm(*(sharers for _, sharers in self._groups))
        parts = [0] * len(self._cells)
        for (cell, sharers), total in zip(self._groups, totals.tolist(), strict=True):
            parts[cell] += int(total) * (whole // sharers)
        return {cell: Fraction(part, whole) for cell, part in zip(self._cells, parts, strict=True) if part}

    def issues(self, times: np.ndarray) -> dict[Place, dict[str, int]]:
        """Executed instructions per place and slot."""
        width = len(SLOTS)
        bundle, number, slot = self._issued
        totals = np.bincount(number * width + slot, weights=times[bundle], minlength=len(self._places) * width).reshape(
            -1, width
        )
        return {
            place: {slot: int(n) for slot, n in zip(SLOTS, own, strict=True) if n}
            for place, own in zip(self._places, totals.tolist(), strict=True)
        }


def _table(rows: np.ndarray, columns: np.ndarray, amounts: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
    """Amounts, or how many there are of each, added up by row and column."""
    sums = np.bincount(rows * shape[1] + columns, weights=amounts, minlength=shape[0] * shape[1])
    return sums.astype(np.int64).reshape(shape)
