"""Cycles that a core waits for a cross-lane unit beside the compiler's schedule, put in as empty bundles. Pure.

The compiler leaves :data:`ratchet.tpu.chips.units.XLU_CYCLES` between two operations on one cross-lane unit. A
permutation of lanes (``vperm``, ``vrot.lane``) holds its unit for ``Chip.permute_extra_cycles`` more, and the bundle
with the next operation on that unit waits, with all behind it. ``docs/model.md`` says which timings show it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ratchet.tpu.chips.units import XLU_CYCLES, named_unit
from ratchet.tpu.dump.listing import Listing


class _Held(NamedTuple):
    """The last operation on a unit: its bundle, the cycle it issued, and by how much it is longer than scheduled."""

    address: int
    cycle: int
    extra: int


def interlocked(listing: Listing, *, extra: int, delay_slots: int) -> Listing:
    """``listing`` with an empty bundle for every cycle in which a cross-lane unit holds up the next bundle.

    Distances across branches mean nothing, and delay slots stay behind their branch: neither is made longer.

    Args:
        listing: as the compiler wrote it.
        extra: cycles for which a permutation holds its unit beyond the schedule's.
        delay_slots: bundles behind a branch that always execute.
    """
    columns = listing.columns
    units = _crossing(columns.opcodes)
    used: dict[int, list[tuple[str, bool]]] = defaultdict(list)
    for number in columns.with_opcode(units.__contains__):
        used[int(columns.bundle[number])].append(units[columns.opcodes[columns.opcode[number]]])
    branches = {int(columns.bundle[number]): target for number, target in columns.branches.items()}
    leaders = {*branches.values(), *(address + delay_slots + 1 for address in branches)}
    delayed = {address + slot for address in branches for slot in range(1, delay_slots + 1)}
    empty = np.zeros(len(listing.bundles), np.int64)
    put_in = 0
    held: dict[str, _Held] = {}
    for address in sorted(used.keys() | leaders):
        if address in leaders:
            held = {}
        own = used.get(address, ())
        if own and address not in delayed:
            free = max((_free(held[unit], address) for unit, _ in own if unit in held), default=0)
            empty[address] = max(0, free - address - put_in)
            put_in += int(empty[address])
        held |= {unit: _Held(address, address + put_in, extra * permutes) for unit, permutes in own}
    return listing.later(empty) if put_in else listing


def _free(held: _Held, address: int) -> int:
    """The cycle from which on the bundle at ``address`` may use a unit."""
    return held.cycle + min(XLU_CYCLES, address - held.address) + held.extra


def _crossing(opcodes: Iterable[str]) -> dict[str, tuple[str, bool]]:
    """Of the opcodes that give work to a cross-lane unit, that unit, and whether it is a permutation."""
    units = {}
    for opcode in opcodes:
        head, _, _ = opcode.partition(".")
        unit = named_unit(opcode)
        if unit.startswith("xlu") and head != "vpop":
            units[opcode] = unit, head in ("vperm", "vrot")
    return units
