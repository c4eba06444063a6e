"""What each empty bundle of a listing waits for. Pure.

An empty bundle is a cycle in which the next bundle cannot issue yet. What that one waits for is not written down, but
leaves a trace: the compiler issues it as soon as it can. So an operand that is used at the shortest distance from its
making that this listing ever shows for that pair of opcodes is what was waited for, and likewise an issue to a unit at
the shortest distance from the one before. Where nothing is at its shortest distance (or a pair occurs only once, which
proves nothing) the empty bundle is blamed on the bundle that issues next, waiting for ``?``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ratchet.account.lines import Where
from ratchet.chips.units import named_unit, slots
from ratchet.dump.instruction import Instruction
from ratchet.dump.listing import Bundle
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


def unit_of(instruction: Instruction) -> str:
    """The unit that an instruction is booked under: its slot class, with spills and fills apart."""
    classes = slots(instruction.opcode, spill=instruction.form.spill, moves=instruction.moves) or ()
    for name in ("SPILL", "FILL", "EUP"):
        if name in classes:
            return name
    return classes[0] if classes else ""


def stalls(
    bundles: Sequence[Bundle],
    blocks: Sequence[tuple[int, int]],
    where: list[list[Place]],
    delay_slots: int,
) -> list[Stall]:
    """Every run of empty bundles and who is blamed for it.

    Args:
        bundles: the listing.
        blocks: first and last address (exclusive) of the basic blocks: distances across branches mean nothing.
        where: of :func:`places`.
        delay_slots: bundles behind a branch that always execute.
    """
    history = _History()
    for first, last in blocks:
        history.read(bundles, first, last)
    blamed: list[Stall] = []
    for start, end, last in history.runs:
        bound = [
            (distance, history.shortest[pair][1], (address, number))
            for pair, distance, address, number in (history.waiting[end] if end < last else ())
            if distance == history.shortest[pair][0]
            and history.shortest[pair][1] >= _EVIDENCE
            and distance > end - start
        ]
        blame = _branch(bundles, where, start, end if end < last else None, delay_slots)
        blamed.append(Stall(start, end, blame or _blamed(bundles, where, end if end < last else None, bound)))
    return blamed


_Distance = tuple[int, int, int, int]
"""A pair of kinds of opcodes, the distance between them, and where the earlier one is."""


class Port(NamedTuple):
    """Where a unit takes instructions."""

    unit: str
    """``mxu2``."""
    weights: bool
    """Weights are pushed beside the products, by a port of their own."""


class _History:
    """Runs of empty bundles, and the distances between instructions that depend on each other."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int, int]] = []
        """First address, the one after the last, end of the block."""
        self.waiting: dict[int, list[_Distance]] = {}
        """Distances of the bundles behind empty ones, by address."""
        self.shortest: dict[int, list[int]] = {}
        """By pair: the least distance, and how often it was seen."""

    def read(self, bundles: Sequence[Bundle], first: int, last: int) -> None:
        """Adds one basic block."""
        made: dict[str, tuple[int, int, int]] = {}
        issued: dict[Port, tuple[int, int, int]] = {}
        products = _products(bundles, first, last)
        empty_from = first
        for address in range(first, last):
            bundle = bundles[address]
            if not bundle:
                continue
            distances = _distances(bundle, address, made, issued, products)
            self._shorten(distances)
            if address > empty_from:
                self.runs.append((empty_from, address, last))
                self.waiting[address] = distances
            empty_from = address + 1
            for number, instruction in enumerate(bundle):
                kind, port = _KINDS[instruction.opcode]
                made[instruction.makes] = (address, number, kind)
                if port:
                    issued[port] = (address, number, kind)
        if last > empty_from:
            self.runs.append((empty_from, last, last))

    def _shorten(self, distances: Sequence[_Distance]) -> None:
        for pair, distance, _, _ in distances:
            best = self.shortest.get(pair)
            if best is None or distance < best[0]:
                self.shortest[pair] = [distance, 1]
            elif distance == best[0]:
                best[1] += 1


_AFTER = 1 << 40
"""Added to a pair that shares a unit rather than a value."""


class _Kind(NamedTuple):
    """What an opcode may wait for."""

    number: int
    """Of its kind: the same for all units of a kind."""
    port: Port | None
    """Where it waits for its turn, if anywhere."""


class _Kinds(dict[str, _Kind]):
    """Kinds by opcode."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[str, int] = {}

    def __missing__(self, opcode: str) -> _Kind:
        unit = named_unit(opcode)
        kind = opcode.replace(unit, unit[:-1]) if unit else opcode
        number = self._numbers.setdefault(kind, len(self._numbers))
        port = Port(unit, opcode.startswith("vmatpush")) if unit and not opcode.startswith("vpop") else None
        self[opcode] = _Kind(number, port)
        return self[opcode]


_KINDS = _Kinds()


def _distances(
    bundle: Bundle,
    address: int,
    made: dict[str, tuple[int, int, int]],
    issued: dict[Port, tuple[int, int, int]],
    products: dict[Where, Where],
) -> list[_Distance]:
    """What the instructions of a bundle may have waited for."""
    distances: list[_Distance] = []
    for number, instruction in enumerate(bundle):
        kind, port = _KINDS[instruction.opcode]
        for value in instruction.reads:
            earlier = made.get(value)
            if earlier is not None:
                distances.append((earlier[2] << 20 | kind, address - earlier[0], earlier[0], earlier[1]))
        if port:
            for before in (port, Port(port.unit, not port.weights)):
                earlier = issued.get(before)
                if earlier is not None:
                    distances.append((_AFTER | earlier[2] << 20 | kind, address - earlier[0], earlier[0], earlier[1]))
        elif (address, number) in products:
            at, place = products[address, number]
            # All products are alike here: their kinds differ in what they do to weights, not in how long they take.
            distances.append((_AFTER | kind, address - at, at, place))
    return distances


def _products(bundles: Sequence[Bundle], first: int, last: int) -> dict[Where, Where]:
    """Which matrix product a result popped from a matrix unit belongs to: they leave it in the order of issue."""
    pushed: dict[str, list[tuple[int, int]]] = {}
    popped: dict[str, list[tuple[int, int]]] = {}
    for address in range(first, last):
        for number, instruction in enumerate(bundles[address]):
            opcode = instruction.opcode
            unit = named_unit(opcode)
            if not unit.startswith("mxu"):
                continue
            if opcode.startswith("vmatmul"):
                pushed.setdefault(unit, []).append((address, number))
            elif opcode.startswith("vpop") and not instruction.reads:
                popped.setdefault(unit, []).append((address, number))
    product_of: dict[Where, Where] = {}
    for unit, results in popped.items():
        products = pushed.get(unit, ())
        each = len(results) // max(1, len(products))
        if products and each * len(products) == len(results):  # else a product and its results are in different blocks
            product_of.update({result: products[i // each] for i, result in enumerate(results)})
    return product_of


def _branch(
    bundles: Sequence[Bundle], where: list[list[Place]], start: int, next_bundle: int | None, delay_slots: int
) -> tuple[tuple[Place, str], ...]:
    """The branch in whose delay slots the empty bundles from ``start`` on are; nothing if they are in none."""
    for back in range(1, delay_slots + 1):
        if start >= back and (next_bundle is None or next_bundle <= start - back + delay_slots + 1):
            for number, instruction in enumerate(bundles[start - back]):
                if instruction.opcode == "sbr.rel":
                    return ((where[start - back][number], BRANCH),)
    return ()


def _blamed(
    bundles: Sequence[Bundle],
    where: list[list[Place]],
    next_bundle: int | None,
    bound: list[tuple[int, int, tuple[int, int]]],
) -> tuple[tuple[Place, str], ...]:
    """Who is blamed for empty bundles before ``next_bundle``; ``bound`` are distance, evidence and the earlier one."""
    if next_bundle is None:
        return ((Code.PIPELINE, UNKNOWN),)
    if bound:
        # Several may bind at once. The longest is named: the compiler may put short ones off until they just fit.
        _, _, (address, number) = max(bound)
        return ((where[address][number], unit_of(bundles[address][number]) or UNKNOWN),)
    return tuple((place, UNKNOWN) for place in where[next_bundle])
