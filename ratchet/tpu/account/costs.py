"""What a listing costs: who shares in each of its bundles, and what so many executions of its blocks come to. Pure.

The rule. A bundle is one cycle, and each of its instructions that takes an issue slot gets an equal share of it,
whatever its line. (Instructions without a slot cost nothing; where a bundle has no others, they share.) An empty bundle
goes to whoever :func:`ratchet.tpu.account.stalls.stalls` blames. Shares are made whole cycles only when executions are
added up, by the largest remainders, so that the parts are never a cycle more or less than the whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import lcm
from typing import NamedTuple, TypeVar

import numpy as np

from ratchet.tpu.account.places import Places, places, places_of_waits
from ratchet.tpu.account.stalls import Stall, stalls
from ratchet.tpu.chips.units import CAPACITY, SLOTS, is_vector_code, mxu_cycles, slots, unit_number, xlu_cycles
from ratchet.tpu.dump.columns import Columns, numbered
from ratchet.tpu.dump.files import TOP
from ratchet.tpu.dump.instruction import Instruction
from ratchet.tpu.dump.listing import Listing
from ratchet.tpu.machine.record import KernelSteps, Part, Path, Record
from ratchet.values.place import Code, Op, Place
from ratchet.values.status import Refusal, Status

Key = TypeVar("Key", bound=Hashable)


class Activity(Enum):
    """What a cycle goes to."""

    ISSUE = "issue"
    STALL = "stall"
    WAIT = "wait"
    LINK_WAIT = "link wait"
    """For what another chip sends, or for what is on its way to one."""
    DELAY = "delay"


class Cell(NamedTuple):
    """A place and what is done there."""

    place: Place
    activity: Activity
    unit: str = ""
    """The unit that issues or is waited for; ``""`` for a wait and a delay."""


ISSUE_SLOTS = sum(capacity for slot, capacity in CAPACITY.items() if slot not in ("FILL", "SPILL"))
"""Slots of one bundle. Fills and spills are loads and stores, counted once more for themselves."""

_UNITS = 8
"""Units of a kind that an opcode may name, and more."""


# --- what is known without running a listing ---


class _Use(NamedTuple):
    """What an instruction occupies."""

    unit: str
    """The part that it is booked under."""
    slots: tuple[str, ...]
    which: int
    """Which matrix unit or cross-lane unit."""
    products: int
    """For how many cycles, of a matrix unit."""
    crossing: int
    """The same of a cross-lane unit."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Costs:
    """What each bundle of one listing costs."""

    blocks: np.ndarray
    """First and last address (exclusive) of the basic blocks."""
    waits: Mapping[int, Place]
    """Where the waits of a kernel belong, by bundle."""
    empty: np.ndarray
    """Per bundle, whether it is."""
    mxu: np.ndarray
    xlu: np.ndarray
    """Cycles for which the instructions of a bundle keep each matrix unit and each cross-lane unit busy."""
    slots: np.ndarray
    """Instructions per bundle and slot class."""
    places: Sequence[Place]
    issued: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Bundle, number of its place and slot of every instruction, once for each of its slots."""
    cells: Sequence[Cell]
    sharers: Sequence[tuple[int, int]]
    """A cell by its number, and among how many a bundle is shared."""
    shares: tuple[np.ndarray, np.ndarray]
    """Bundle of every share, and which of ``sharers`` has it."""


def costs_of(
    listing: Listing,
    blocks: Sequence[tuple[int, int]],
    *,
    compiler: str,
    delay_slots: int,
    elsewhere: Place | None = None,
) -> Costs:
    """Reads a listing.

    Args:
        listing: the program.
        blocks: first and last address (exclusive) of its basic blocks.
        compiler: version, for messages.
        delay_slots: bundles behind a branch that always execute.
        elsewhere: where all of it belongs, for what is no kernel.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for an opcode whose unit is not known.
    """
    columns, size = listing.columns, len(listing.bundles)
    own = places(columns, elsewhere)
    waits = {} if elsewhere else places_of_waits(listing, own)
    blamed = stalls(columns, blocks, own, delay_slots)
    uses, use = _uses(listing, compiler)
    takes = np.array([[slot in one.slots for slot in SLOTS] for one in uses], bool).reshape(-1, len(SLOTS))[use]
    instruction, slot = np.nonzero(takes)
    place, issuing = numbered(own.number[instruction].tolist())
    cells, sharers, shares = _share(columns, own, [one.unit for one in uses], use, takes.any(axis=1), blamed)
    which, products, crossing = np.array([one[2:] for one in uses], np.int64).reshape(-1, 3)[use].T
    return Costs(
        blocks=np.array(blocks, np.int64).reshape(-1, 2),
        waits=waits,
        empty=np.diff(columns.first) == 0,
        mxu=_table(columns.bundle, which, products, (size, _UNITS)),
        xlu=_table(columns.bundle, which, crossing, (size, _UNITS)),
        slots=_table(columns.bundle[instruction], slot, None, (size, len(SLOTS))),
        places=[own.known[number] for number in issuing],
        issued=(columns.bundle[instruction], place, slot),
        cells=cells,
        sharers=sharers,
        shares=shares,
    )


def _uses(listing: Listing, compiler: str) -> tuple[list[_Use], np.ndarray]:
    """What the instructions occupy, and per instruction which of it: the same for all of a form, pointers excepted."""
    columns = listing.columns
    spill = np.array([form.spill for form in columns.forms], bool)[columns.form]
    moves = np.zeros(len(columns), bool)
    for number in columns.with_opcode(lambda opcode: opcode.startswith("int_to_ptr")):
        moves[number] = columns.instruction(number).moves
    _, first, use = np.unique((columns.opcode * 2 + spill) * 2 + moves, return_index=True, return_inverse=True)
    found: dict[int, _Use] = {}
    for number in sorted(first.tolist()):
        instruction = columns.instruction(number)
        known = _use(instruction)
        if known is None:
            raise Refusal(
                Status.SCHEDULE_UNKNOWN,
                f"{listing.where(int(columns.bundle[number]))} ({compiler}): "
                f"`{str(instruction)[:140]}`: which unit this occupies is not known. "
                "The schedule machine does not guess: report it, or write the kernel without it.",
            )
        found[number] = known
    return [found[number] for number in first.tolist()], use


def _use(instruction: Instruction) -> _Use | None:
    """None for an opcode that is not known."""
    opcode = instruction.opcode
    classes = slots(opcode, spill=instruction.form.spill, moves=instruction.moves)
    products = mxu_cycles(opcode)
    if classes is None or products is None:
        return None
    if not classes:
        return _Use("SALU", (), 0, 0, 0)
    unit = classes[-1] if is_vector_code(opcode) else "SALU"  # the last says most: EUP, FILL, SPILL
    crossing = xlu_cycles(opcode) if classes[0] == "XLU" and not products else 0
    return _Use(unit, classes, unit_number(opcode), products, crossing)


def _share(
    columns: Columns, own: Places, units: Sequence[str], use: np.ndarray, takes: np.ndarray, blamed: Sequence[Stall]
) -> tuple[list[Cell], list[tuple[int, int]], tuple[np.ndarray, np.ndarray]]:
    """Who shares in each bundle: ``cells``, ``sharers`` and ``shares`` of :class:`Costs`.

    ``takes`` says of each instruction whether it takes a slot, ``units[use]`` its unit.
    """
    bundle, size = columns.bundle, len(columns.first) - 1
    # Where no instruction of a bundle takes a slot, all share.
    sharing = np.flatnonzero(takes | (np.bincount(bundle, weights=takes, minlength=size)[bundle] == 0))
    unit = np.array([SLOTS.index(one) for one in units], np.int64)[use[sharing]]
    cell, keys = numbered((own.number[sharing] * len(SLOTS) + unit).tolist())
    issuing = [divmod(key, len(SLOTS)) for key in keys]
    cells = {Cell(own.known[p], Activity.ISSUE, SLOTS[u]): number for number, (p, u) in enumerate(issuing)}
    among = np.bincount(bundle[sharing], minlength=size)
    rows = [(bundle[sharing], cell, among[bundle[sharing]])]
    for stall in blamed:
        who = [cells.setdefault(Cell(p, Activity.STALL, u), len(cells)) for p, u in stall.blamed]
        empty = np.repeat(np.arange(stall.start, stall.end), len(who))
        rows.append((empty, np.tile(who, stall.end - stall.start), np.full(len(empty), len(who))))
    shared, cell, among = (np.concatenate(column) for column in zip(*rows, strict=True))
    most = int(np.max(among, initial=0)) + 1
    groups, group = np.unique(cell * most + among, return_inverse=True)
    return list(cells), [divmod(one, most) for one in groups.tolist()], (shared, group)


def _table(rows: np.ndarray, columns: np.ndarray, amounts: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
    """Amounts, or how many there are of each, added up by row and column."""
    sums = np.bincount(rows * shape[1] + columns, weights=amounts, minlength=shape[0] * shape[1])
    return sums.astype(np.int64).reshape(shape)


# --- executions ---


@dataclass(frozen=True, kw_only=True, eq=False)
class Executed:
    """What so many executions of a listing's blocks come to, waits and delays left out."""

    times: np.ndarray
    """Executions of each bundle."""
    bundles: int
    empty: int
    issues: Mapping[str, int]
    """Instructions per slot."""
    mxu: np.ndarray
    xlu: np.ndarray
    """Cycles for which each of these units is busy."""


def executed(costs: Costs, counts: Sequence[int]) -> Executed:
    """``counts`` are executions per block."""
    steps = np.zeros(len(costs.empty) + 1, np.int64)
    np.add.at(steps, costs.blocks[:, 0], counts)
    np.subtract.at(steps, costs.blocks[:, 1], counts)
    times = np.cumsum(steps[:-1])
    return Executed(
        times=times,
        bundles=int(times.sum()),
        empty=int(times[costs.empty].sum()),
        issues=dict(zip(SLOTS, (times @ costs.slots).tolist(), strict=True)),
        mxu=times @ costs.mxu,
        xlu=times @ costs.xlu,
    )


def whole(shares: Mapping[Key, int], denominator: int, total: int) -> dict[Key, int]:
    """Rounds shares, in so many parts of 1, to whole numbers that sum to ``total``, each to one of its two neighbours.

    The largest remainders are rounded up; equal ones in the order of the mapping.

    Raises:
        ValueError: if the shares do not sum to ``total``.
    """
    if sum(shares.values()) != total * denominator:
        raise ValueError(f"shares sum to {sum(shares.values())}/{denominator}, not to {total}")
    rounded = {key: share // denominator for key, share in shares.items()}
    missing = total - sum(rounded.values())
    for key in sorted(shares, key=lambda key: -(shares[key] % denominator))[:missing]:
        rounded[key] += 1
    return rounded


def _shared_out(costs: Costs, amounts: np.ndarray) -> dict[Cell, int]:
    """Amounts per bundle by cell, as its sharers have them."""
    bundle, group = costs.shares
    # Sums of whole numbers far below 2**53: exact in doubles, which is what bincount adds in.
    totals = np.bincount(group, weights=amounts[bundle], minlength=len(costs.sharers))
    denominator = lcm(*(among for _, among in costs.sharers))
    parts = [0] * len(costs.cells)
    for (cell, among), amount in zip(costs.sharers, totals.tolist(), strict=True):
        parts[cell] += int(amount) * (denominator // among)
    shares = {cell: part for cell, part in zip(costs.cells, parts, strict=True) if part}
    return whole(shares, denominator, int(amounts.sum()))


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The same by place."""

    cycles: Mapping[Cell, int]
    empty_slots: Mapping[Cell, int]
    issues: Sequence[tuple[Place, Mapping[str, int]]]
    """Instructions per slot."""


def placed(costs: Costs, executed: Executed) -> Placed:
    """What executions come to by place."""
    used = costs.slots[:, [slot not in ("FILL", "SPILL") for slot in SLOTS]].sum(axis=1)
    bundle, place, slot = costs.issued
    issued = _table(place, slot, executed.times[bundle], (len(costs.places), len(SLOTS)))
    return Placed(
        cycles=_shared_out(costs, executed.times),
        empty_slots=_shared_out(costs, executed.times * (ISSUE_SLOTS - used)),
        issues=[
            (own, {name: number for name, number in zip(SLOTS, numbers, strict=True) if number})
            for own, numbers in zip(costs.places, issued.tolist(), strict=True)
        ],
    )


# --- a run ---


Known = dict[tuple[int, Op | Code | None], Costs]
"""Costs of listings, by their identity and where all of each belongs: the chips of a slice execute the same."""


class Account(NamedTuple):
    """What one listing of a run costs."""

    elsewhere: Op | Code | None
    """Where all of it belongs: the HLO op, or the top level. None for a kernel."""
    waits: Mapping[int, Place]
    """Of :class:`Costs`."""
    whole: Executed
    outside: Placed | None
    """The same of what is no kernel."""
    parts: Mapping[str, tuple[Part, Executed, Placed]]
    """Of a kernel."""
    paths: Sequence[tuple[Path, Executed]]
    """Grid steps of a kernel by the blocks that they executed."""


def accounts_of(record: Record, *, compiler: str, known: Known) -> dict[str, Account]:
    """What every listing costs, and what its executions come to. What is new is added to ``known``.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for an opcode whose unit is not known.
    """
    accounts = {}
    for name, unit in record.units.items():
        elsewhere = _elsewhere(record, name)
        translated = unit.translated
        key = id(translated.listing), elsewhere
        if key not in known:
            blocks = [(block.start, block.end) for block in translated.blocks]
            known[key] = costs_of(
                translated.listing,
                blocks,
                compiler=compiler,
                delay_slots=translated.delay_slots,
                elsewhere=elsewhere,
            )
        accounts[name] = _account(known[key], translated.counts, elsewhere, record.steps.kernels.get(name))
    return accounts


def _account(costs: Costs, counts: Sequence[int], elsewhere: Op | Code | None, kernel: KernelSteps | None) -> Account:
    whole = executed(costs, counts)
    parts = {}
    for name, part in kernel.parts.items() if kernel else ():
        done = executed(costs, part.counts)
        parts[name] = part, done, placed(costs, done)
    return Account(
        elsewhere=elsewhere,
        waits=costs.waits,
        whole=whole,
        outside=placed(costs, whole) if elsewhere else None,
        parts=parts,
        paths=[(path, executed(costs, path.counts)) for path in kernel.paths] if kernel else (),
    )


def _elsewhere(record: Record, name: str) -> Op | Code | None:
    if record.units[name].is_kernel:
        return None
    if name == TOP:
        return Code.TOP_LEVEL
    ops = sorted(op for op, unit in record.unit_of_op.items() if unit == name) or [name]
    return Op(name=ops[0], opcode=record.opcodes.get(ops[0], "runtime"), alike=len(ops) - 1)
