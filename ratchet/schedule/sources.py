"""Which source line each instruction of a listing belongs to, and what each empty bundle waits for. Pure.

The compiler writes a location behind most vector instructions. Those without one (spills, selects, transcendentals) get
the line of what they serve: a store that of the instruction whose value it stores, anything else that of the first
instruction that reads its result, or else that of the one that made its operands. Scalar code without a location is
the pipeline that the compiler puts around a kernel body.

An empty bundle is a cycle in which the next bundle cannot issue yet. What that one waits for is not written down, but
leaves a trace: the compiler issues it as soon as it can. So an operand that is used at the shortest distance from its
making that this listing ever shows for that pair of opcodes is what was waited for, and likewise an issue to a unit at
the shortest distance from the one before. Where nothing is at its shortest distance (or a pair occurs only once, which
proves nothing) the empty bundle is blamed on the bundle that issues next, waiting for ``?``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ratchet.schedule.bundles import Instruction
from ratchet.schedule.translate import DELAY_SLOTS
from ratchet.schedule.units import is_vector_code, slots

PIPELINE = "pipeline code of the compiler"
"""Scalar code without a source line: window addresses, DMA starts and waits, loop control."""
NO_LINE = "vector code without a source line"
UNKNOWN = "?"
"""Unit of a stall for which no instruction can be named."""
BRANCH = "branch"
"""Unit of a stall in the delay slots of a branch."""

_LOCATION = re.compile(r'"([^"]*)":(\d+):')
_VALUE = re.compile(r"%(\w+)")
_UNIT = re.compile(r"(mxu|xlu)\d")
_EVIDENCE = 3
"""How often a shortest distance must be seen before it says anything."""


class Place(NamedTuple):
    """A line of a source file; line 0 where there is none, and ``file`` then says what it is."""

    file: str
    line: int


class Stall(NamedTuple):
    """What empty bundles wait for: shares of them per place, and the unit."""

    start: int
    end: int
    blamed: tuple[tuple[Place, str], ...]
    """Who is blamed, in equal shares; more than one only where the next bundle is blamed."""


def place_of(notes: Sequence[str]) -> Place | None:
    """The source line that an instruction's notes tell, or None. Folders are left out of the file's name."""
    for note in notes:
        if note.startswith("loc("):
            match = _LOCATION.search(note)
            if match is not None:
                return Place(match.group(1).replace("\\", "/").rpartition("/")[2], int(match.group(2)))
    return None


def unit_of(instruction: Instruction) -> str:
    """The unit that an instruction is booked under: its slot class, with spills and fills apart."""
    classes = slots(instruction) or ()
    for name in ("SPILL", "FILL", "EUP"):
        if name in classes:
            return name
    return classes[0] if classes else ""


def _value(text: str) -> str:
    """``v3400_v28`` -> ``v3400``: the value, whatever register holds it."""
    return text.partition("_")[0]


def places(bundles: Sequence[tuple[Instruction, ...]], elsewhere: Place | None = None) -> list[list[Place]]:
    """The place of every instruction, bundle by bundle. With ``elsewhere`` everything is there: an op of XLA's."""
    if elsewhere is not None:
        return [[elsewhere] * len(bundle) for bundle in bundles]
    memo: dict[tuple[str, ...], Place | None] = {}
    found: list[list[Place | None]] = []
    made: dict[str, tuple[int, int]] = {}
    lost: dict[str, tuple[int, int]] = {}
    for address, bundle in enumerate(bundles):
        row: list[Place | None] = []
        for number, instruction in enumerate(bundle):
            notes = instruction.notes
            if notes not in memo:
                memo[notes] = place_of(notes)
            place = memo[notes]
            row.append(place)
            value = _value(instruction.dest)
            made[value] = (address, number)
            if place is None and is_vector_code(instruction.opcode):
                lost[value] = (address, number)
        found.append(row)
    if lost:
        _from_readers(bundles, found, lost)
        _from_makers(bundles, found, made, lost)
    default = Place(PIPELINE, 0), Place(NO_LINE, 0)
    return [
        [place or default[is_vector_code(instruction.opcode)] for place, instruction in zip(row, bundle, strict=True)]
        for row, bundle in zip(found, bundles, strict=True)
    ]


def _from_readers(
    bundles: Sequence[tuple[Instruction, ...]], found: list[list[Place | None]], lost: dict[str, tuple[int, int]]
) -> None:
    """Backwards, so that a chain of instructions without a line gets that of its end; the first reader wins."""
    reader: dict[str, Place] = {}
    for address in range(len(bundles) - 1, -1, -1):
        for number, instruction in enumerate(bundles[address]):
            place = found[address][number]
            if place is None:
                value = _value(instruction.dest)
                if value in reader and value in lost:
                    place = found[address][number] = reader[value]
            if place is not None and place.line:
                for value in _VALUE.findall(instruction.operands):
                    if (key := _value(value)) in lost:
                        reader[key] = place


def _from_makers(
    bundles: Sequence[tuple[Instruction, ...]],
    found: list[list[Place | None]],
    made: dict[str, tuple[int, int]],
    lost: dict[str, tuple[int, int]],
) -> None:
    """Forwards: stores, and results that nobody with a line reads."""
    for address, number in sorted(lost.values()):
        if found[address][number] is not None:
            continue
        for value in reversed(_VALUE.findall(bundles[address][number].operands)):  # the stored value stands last
            where = made.get(_value(value))
            place = found[where[0]][where[1]] if where else None
            if place is not None and value[0] != "s":
                found[address][number] = place
                break


# --- empty bundles ---


def stalls(
    bundles: Sequence[tuple[Instruction, ...]], blocks: Sequence[tuple[int, int]], where: list[list[Place]]
) -> list[Stall]:
    """Every run of empty bundles and who is blamed for it.

    Args:
        bundles: the listing.
        blocks: first and last address (exclusive) of the basic blocks: distances across branches mean nothing.
        where: of :func:`places`.
    """
    runs: list[tuple[int, int, int]] = []  # first, after the last, end of the block
    waiting: dict[int, list[tuple[tuple[str, str], int, tuple[int, int]]]] = {}
    shortest: dict[tuple[str, str], list[int]] = {}  # least distance and how often it was seen
    for first, last in blocks:
        made: dict[str, tuple[int, int]] = {}
        issued: dict[str, tuple[int, int]] = {}
        products = _products(bundles, first, last)
        empty_from = first
        for address in range(first, last):
            bundle = bundles[address]
            if not bundle:
                continue
            stalled = address > empty_from
            if stalled:
                runs.append((empty_from, address, last))
            empty_from = address + 1
            found = _distances(bundles, address, made, issued, products)
            for pair, distance, _ in found:
                best = shortest.get(pair)
                if best is None or distance < best[0]:
                    shortest[pair] = [distance, 1]
                elif distance == best[0]:
                    best[1] += 1
            if stalled:
                waiting[address] = found
            for number, instruction in enumerate(bundle):
                made[_value(instruction.dest)] = (address, number)
                key = _issue_key(instruction.opcode)
                if key:
                    issued[key] = (address, number)
        if last > empty_from:
            runs.append((empty_from, last, last))
    blamed: list[Stall] = []
    for start, end, last in runs:
        bound = [
            (distance, shortest[pair][1], earlier)
            for pair, distance, earlier in (waiting[end] if end < last else ())
            if distance == shortest[pair][0] and shortest[pair][1] >= _EVIDENCE and distance > end - start
        ]
        blamed.append(Stall(start, end, _blamed(bundles, where, start, end if end < last else None, bound)))
    return blamed


def _distances(
    bundles: Sequence[tuple[Instruction, ...]],
    address: int,
    made: dict[str, tuple[int, int]],
    issued: dict[str, tuple[int, int]],
    products: dict[tuple[int, int], tuple[int, int]],
) -> list[tuple[tuple[str, str], int, tuple[int, int]]]:
    """What the instructions of a bundle may have waited for: a pair of opcodes, the distance, and the earlier one."""
    found = []
    for number, instruction in enumerate(bundles[address]):
        kind = _kind(instruction.opcode)
        for value in _VALUE.findall(instruction.operands):
            earlier = made.get(_value(value))
            if earlier is not None:
                opcode = bundles[earlier[0]][earlier[1]].opcode
                found.append(((_kind(opcode), kind), address - earlier[0], earlier))
        key = _issue_key(instruction.opcode)
        if key:
            for before in (key, key.replace("push ", "") if key.startswith("push ") else "push " + key):
                earlier = issued.get(before)
                if earlier is not None:
                    opcode = bundles[earlier[0]][earlier[1]].opcode
                    found.append((("after " + _kind(opcode), kind), address - earlier[0], earlier))
        elif (address, number) in products:
            earlier = products[address, number]
            opcode = bundles[earlier[0]][earlier[1]].opcode
            found.append(((_kind(opcode), kind), address - earlier[0], earlier))
    return found


def _products(
    bundles: Sequence[tuple[Instruction, ...]], first: int, last: int
) -> dict[tuple[int, int], tuple[int, int]]:
    """Which matrix product a result popped from a matrix unit belongs to: they leave it in the order of issue."""
    pushed: dict[str, list[tuple[int, int]]] = {}
    popped: dict[str, list[tuple[int, int]]] = {}
    for address in range(first, last):
        for number, instruction in enumerate(bundles[address]):
            opcode = instruction.opcode
            if "mxu" not in opcode:
                continue
            unit = opcode[opcode.index("mxu") :]
            if opcode.startswith("vmatmul"):
                pushed.setdefault(unit, []).append((address, number))
            elif opcode.startswith("vpop") and not instruction.operands:
                popped.setdefault(unit, []).append((address, number))
    found = {}
    for unit, results in popped.items():
        products = pushed.get(unit, ())
        each = len(results) // max(1, len(products))
        if products and each * len(products) == len(results):  # else a product and its results lie in different blocks
            found.update({result: products[i // each] for i, result in enumerate(results)})
    return found


@cache
def _issue_key(opcode: str) -> str:
    """The unit whose turn an issue has to wait for; weights are pushed beside the products, by a port of their own."""
    unit = _UNIT.search(opcode)
    if unit is None or opcode.startswith("vpop"):
        return ""
    return "push " + unit.group() if opcode.startswith("vmatpush") else unit.group()


@cache
def _kind(opcode: str) -> str:
    """The opcode without the number of its unit: all units of a kind are alike."""
    return _UNIT.sub(r"\1", opcode)


def _blamed(
    bundles: Sequence[tuple[Instruction, ...]],
    where: list[list[Place]],
    start: int,
    next_bundle: int | None,
    bound: list[tuple[int, int, tuple[int, int]]],
) -> tuple[tuple[Place, str], ...]:
    """Who is blamed for the empty bundles from ``start`` on; ``bound`` are distance, evidence and the earlier one."""
    for back in range(1, DELAY_SLOTS + 1):
        if start >= back and (next_bundle is None or next_bundle <= start - back + DELAY_SLOTS + 1):
            for number, instruction in enumerate(bundles[start - back]):
                if instruction.opcode == "sbr.rel":
                    return ((where[start - back][number], BRANCH),)
    if next_bundle is None:
        return ((Place(PIPELINE, 0), UNKNOWN),)
    if bound:
        # Several may bind at once. The longest is named: the compiler may put short ones off until they just fit.
        _, _, (address, number) = max(bound)
        return ((where[address][number], unit_of(bundles[address][number]) or UNKNOWN),)
    return tuple((place, UNKNOWN) for place in where[next_bundle])
