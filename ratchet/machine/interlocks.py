"""Cycles that a core waits for a cross-lane unit beside the compiler's schedule, put in as empty bundles. Pure.

The compiler leaves :data:`ratchet.chips.units.XLU_CYCLES` between two operations on one cross-lane unit. A permutation
of lanes (``vperm``, ``vrot.lane``) holds its unit for ``Chip.permute_extra_cycles`` more, and the bundle with the next
operation on that unit waits, with all behind it. ``docs/model.md`` says which timings show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ratchet.chips.units import XLU_CYCLES, named_unit
from ratchet.dump.instruction import Instruction
from ratchet.dump.listing import Bundle, Listing


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
    units = _crossing({instruction.opcode for bundle in listing.bundles for instruction in bundle})
    if not units:
        return listing
    branches = {
        a: i.form.target for a, bundle in enumerate(listing.bundles) for i in bundle if i.form.target is not None
    }
    leaders = {*branches.values(), *(address + delay_slots + 1 for address in branches)}
    delayed = {address + slot for address in branches for slot in range(1, delay_slots + 1)}
    origin: list[int] = []
    moved: list[int] = []
    held: dict[str, _Held] = {}
    for address, bundle in enumerate(listing.bundles):
        if address in leaders:
            held = {}
        used = [units[instruction.opcode] for instruction in bundle if instruction.opcode in units]
        if address not in delayed:
            free = max((_free(held[unit], address) for unit, _ in used if unit in held), default=0)
            origin += [address] * (free - len(origin))
        moved.append(len(origin))
        held |= {unit: _Held(address, len(origin), extra * permutes) for unit, permutes in used}
        origin.append(address)
    if len(origin) == len(listing.bundles):
        return listing
    moved.append(len(origin))
    bundles: list[Bundle] = [()] * len(origin)
    for address, bundle in enumerate(listing.bundles):
        bundles[moved[address]] = _redirected(bundle, moved) if address in branches else bundle
    return replace(listing, bundles=bundles, origin=origin)


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


def _redirected(bundle: Bundle, moved: Sequence[int]) -> Bundle:
    """The bundle of a branch with its new target."""

    def redirect(instruction: Instruction) -> Instruction:
        target = instruction.form.target
        if target is None:
            return instruction
        return instruction._replace(form=replace(instruction.form, target=moved[target]))

    return tuple(redirect(instruction) for instruction in bundle)
