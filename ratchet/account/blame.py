"""Blame: every cycle of a run goes to a source line and a unit, by region and by kind of grid step.

A region is a part of all runs of a kernel: ``first`` (from its start to the end of the first grid step, windows being
filled), ``last`` (from the last grid step on, results being drained) and ``steady`` in between. A wait belongs to its
own line, or, where the compiler's pipeline waits, to the windows that are waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from ratchet.account.shares import ISSUE_SLOTS, Cell, Shares, whole
from ratchet.account.sources import PIPELINE, Place
from ratchet.chips.units import CAPACITY, SLOTS
from ratchet.dump.files import TOP
from ratchet.dump.instruction import Address, Register, Value
from ratchet.dump.listing import Listing
from ratchet.machine.grid_steps import Part
from ratchet.values.blame import LineCost, RegionCost, StepKind

if TYPE_CHECKING:
    from ratchet.account.timeline import Record

STALLS, WAITS = "dependencies", "DMA waits"
"""What a region may be bound by besides a resource."""

PARTS = ("first", "steady", "last", "whole")

KINDS = 6
"""Kinds of grid steps that are told apart; the rest is put together."""

TOP_LEVEL = "(top level)"


@dataclass(frozen=True, kw_only=True)
class Region:
    """A :class:`RegionCost` with what the words about losses need besides."""

    cost: RegionCost
    listing: str
    slots: Mapping[str, int]
    """Executed instructions per slot."""


def place_of_listing(record: Record, name: str) -> Place | None:
    """Where all of a listing belongs that is no kernel: the HLO op, or the top level. None for a kernel."""
    if record.units[name][1]:
        return None
    if name == TOP:
        return Place(TOP_LEVEL, 0)
    ops = sorted(op for op, unit in record.unit_of_op.items() if unit == name) or [name]
    alike = f" and {len(ops) - 1} alike" if len(ops) > 1 else ""
    return Place(f"{ops[0]}{alike} ({record.opcodes.get(ops[0], 'runtime')})", 0)


def regions(record: Record, shares: Mapping[str, Shares]) -> list[Region]:
    """All regions, in order of time; their cycles sum to the record's."""
    found: list[Region] = []
    rest = record.cycles
    outside: dict[Cell, int] = {}
    empty: dict[Cell, int] = {}
    issues: dict[Place, dict[str, int]] = {}
    for name, (translated, is_kernel) in record.units.items():
        if is_kernel:
            parts = record.steps.kernels[name].parts if name in record.steps.kernels else {}
            windows = _Windows(translated.listing)
            for part in PARTS:
                if part in parts:
                    found.append(_kernel_region(name, part, parts[part], shares[name], windows))
                    rest -= found[-1].cost.cycles
            continue
        times = shares[name].times(translated.counts)
        cells = whole(shares[name].cycles(times), int(times.sum()))
        for (address, flag), cycles in record.steps.waits.get(name, {}).items():
            waited = _op_waited_for(record, flag) or shares[name].where[address][0]
            cells[waited, "wait"] = cells.get((waited, "wait"), 0) + cycles
        for sums, own in ((outside, cells), (empty, _empty_slots(shares[name], times))):
            for cell, cycles in own.items():
                sums[cell] = sums.get(cell, 0) + cycles
        for place, slots in shares[name].issues(times).items():
            issues[place] = slots
    left = rest - sum(outside.values())
    if left:
        outside[Place(TOP_LEVEL, 0), "delay"] = left
    lines = _lines(outside, issues, empty)
    everything = RegionCost(
        kernel="",
        name="outside",
        steps=0,
        cycles=rest,
        stall_cycles=sum(sum(line.stall_cycles.values()) for line in lines),
        wait_cycles=sum(line.wait_cycles for line in lines),
        busy_cycles={},
        critical="",
        lines=lines,
    )
    return [*found, Region(cost=everything, listing="", slots=_total(issues.values()))]


def _kernel_region(name: str, part: str, recorded: Part, shares: Shares, windows: _Windows) -> Region:
    times = shares.times(recorded.counts)
    cells = whole(shares.cycles(times), int(times.sum()))
    for (address, _), cycles in recorded.waits.items():
        waited = windows.place(address, shares.where[address])
        cells[waited, "wait"] = cells.get((waited, "wait"), 0) + cycles
    left = recorded.cycles - sum(cells.values())
    if left:
        cells[Place(PIPELINE, 0), "delay"] = left
    issues = shares.issues(times)
    lines = _lines(cells, issues, _empty_slots(shares, times))
    slots = _total(issues.values())
    stalled = int(times[shares.empty].sum())
    waited_cycles = sum(recorded.waits.values())
    busy = busy_cycles(shares, times, slots)
    busy["HBM"] = min(recorded.cycles, ceil(recorded.hbm_cycles))
    bound = {unit: cycles for unit, cycles in busy.items() if unit != "HBM" or cycles > recorded.cycles // 2}
    bound |= {STALLS: stalled, WAITS: waited_cycles}
    cost = RegionCost(
        kernel=name,
        name=part,
        steps=recorded.steps,
        cycles=recorded.cycles,
        stall_cycles=stalled,
        wait_cycles=waited_cycles,
        busy_cycles=busy,
        critical=max(bound, key=lambda unit: bound[unit]),
        lines=lines,
    )
    return Region(cost=cost, listing=name, slots=slots)


def busy_cycles(shares: Shares, times: np.ndarray, slots: Mapping[str, int]) -> dict[str, int]:
    """Least cycles for which each unit is needed: the busiest of its kind, or instructions over slots."""
    busy = {"MXU": int((times @ shares.mxu).max()), "XLU": int((times @ shares.xlu).max())}
    for slot, capacity in CAPACITY.items():
        if slot not in ("MXU", "XLU", "FILL", "SPILL"):
            busy[slot] = ceil(slots.get(slot, 0) / capacity)
    return busy


def _total(issues: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = dict.fromkeys(SLOTS, 0)
    for slots in issues:
        for slot, number in slots.items():
            found[slot] += number
    return found


def _empty_slots(shares: Shares, times: np.ndarray) -> dict[Cell, int]:
    exact = shares.empty_slots(times)
    return whole(exact, int(sum(exact.values())))


def _lines(
    cells: Mapping[Cell, int], issues: Mapping[Place, Mapping[str, int]], empty: Mapping[Cell, int]
) -> tuple[LineCost, ...]:
    """Costs per place from cycles and empty slots per place and part, costliest first."""
    parts: dict[Place, dict[str, int]] = {place: {} for place, slots in issues.items() if slots}
    for (place, part), cycles in cells.items():
        if cycles:
            parts.setdefault(place, {})[part] = cycles
    slots_left: dict[Place, int] = {}
    for (place, _), number in empty.items():
        slots_left[place] = slots_left.get(place, 0) + number
    found = []
    for place, own in parts.items():
        slots = issues.get(place, {})
        cycles = sum(own.values())
        found.append(
            LineCost(
                where=f"{place.file}:{place.line}" if place.line else place.file,
                line=place.line,
                cycles=cycles,
                issue_cycles={p: n for p, n in sorted(own.items()) if p not in ("wait", "delay") and ":" not in p},
                stall_cycles={p[6:]: n for p, n in sorted(own.items()) if p.startswith("stall:")},
                wait_cycles=own.get("wait", 0),
                delay_cycles=own.get("delay", 0),
                issues=dict(slots),
                empty_slots=slots_left.get(place, 0) + ISSUE_SLOTS * (own.get("wait", 0) + own.get("delay", 0)),
                spill_stores=slots.get("SPILL", 0),
                spill_loads=slots.get("FILL", 0),
            )
        )
    return tuple(sorted(found, key=lambda line: (-line.cycles, line.line, line.where)))


def add_up(found: Iterable[Region]) -> tuple[LineCost, ...]:
    """The lines of all regions together, costliest first."""
    cells: dict[Cell, int] = {}
    empty: dict[Cell, int] = {}
    issues: dict[Place, dict[str, int]] = {}
    for region in found:
        for line in region.cost.lines:
            place = Place(line.where.rpartition(":")[0] if line.line else line.where, line.line)
            parts = {**line.issue_cycles, "wait": line.wait_cycles, "delay": line.delay_cycles}
            parts |= {f"stall:{unit}": cycles for unit, cycles in line.stall_cycles.items()}
            for part, cycles in parts.items():
                cells[place, part] = cells.get((place, part), 0) + cycles
            bundles = line.empty_slots - ISSUE_SLOTS * (line.wait_cycles + line.delay_cycles)
            empty[place, ""] = empty.get((place, ""), 0) + bundles
            slots = issues.setdefault(place, {})
            for slot, number in line.issues.items():
                slots[slot] = slots.get(slot, 0) + number
    return _lines(cells, issues, empty)


# --- kinds of grid steps ---


def step_kinds(record: Record, shares: Mapping[str, Shares]) -> tuple[StepKind, ...]:
    """Grid steps by the way they took, costliest first."""
    kinds = []
    for name, kernel in record.steps.kernels.items():
        for path in kernel.paths:
            times = shares[name].times(path.counts)
            kinds.append(
                StepKind(
                    kernel=name,
                    steps=path.steps,
                    cycles=path.cycles,
                    least_cycles=path.least_cycles,
                    most_cycles=path.most_cycles,
                    stall_cycles=path.steps * int(times[shares[name].empty].sum()),
                    wait_cycles=path.wait_cycles,
                    mxu_cycles=path.steps * int((times @ shares[name].mxu).max()),
                )
            )
    kinds.sort(key=lambda kind: -kind.cycles)
    rest = kinds[KINDS:]
    if len(rest) < 2:
        return tuple(kinds)
    others = StepKind(
        kernel="(others)",
        steps=sum(kind.steps for kind in rest),
        cycles=sum(kind.cycles for kind in rest),
        least_cycles=min(kind.least_cycles for kind in rest),
        most_cycles=max(kind.most_cycles for kind in rest),
        stall_cycles=sum(kind.stall_cycles for kind in rest),
        wait_cycles=sum(kind.wait_cycles for kind in rest),
        mxu_cycles=sum(kind.mxu_cycles for kind in rest),
    )
    return (*kinds[:KINDS], others)


# --- what is waited for ---

_ADDRESS_STEPS = 8
"""How far an address is followed back to the allocation that it lies in."""


class _Windows:
    """The windows of a kernel that the compiler's pipeline copies, by the sync flags that tell of them."""

    def __init__(self, listing: Listing) -> None:
        self._bundles = listing.bundles
        self._made = {i.makes: i for bundle in listing.bundles for i in bundle if i.makes[0] == "s"}
        found: dict[str, set[str]] = {}
        for bundle in listing.bundles:
            for instruction in bundle:
                if instruction.opcode[:4] != "dma.":
                    continue
                flag = self._allocation(instruction.named("dst_syncflagno"))
                buffer = listing.allocations.get(self._allocation(instruction.named("vmem")))
                if flag and buffer is not None and buffer.window is not None:
                    found.setdefault(flag, set()).add(f"{buffer.window.kind} {buffer.window.number}")
        self._of_flag = {flag: f"waits for window {', '.join(sorted(own))}" for flag, own in found.items()}

    def _allocation(self, operand: Value | None) -> str:
        """The allocation that an address is made from, or ``""``."""
        if isinstance(operand, Address):
            if operand.allocation:
                return operand.allocation
            operand = operand.registers[0] if operand.registers else None
        maker = self._made.get(operand.name) if isinstance(operand, Register) else None
        for _ in range(_ADDRESS_STEPS - 1):
            if maker is None:
                break
            if maker.form.allocations:
                return maker.form.allocations[0]
            maker = self._made.get(next((value for value in maker.reads if value[0] == "s"), ""))
        return ""

    def place(self, address: int, where: Sequence[Place]) -> Place:
        """The place of a wait: its line, else the windows that arrive on its flag, else the pipeline."""
        for instruction, place in zip(self._bundles[address], where, strict=True):
            if instruction.opcode.startswith(("dma.done.wait", "vwait")):
                flag = self._allocation(instruction.operands[0].value)
                return Place(self._of_flag[flag], 0) if not place.line and flag in self._of_flag else place
        return Place(PIPELINE, 0)


def _op_waited_for(record: Record, flag: int) -> Place | None:
    """The asynchronous op of the entry computation that a flag belongs to, or None."""
    op = record.op_of_flag(flag)
    return Place(f"{op} ({record.opcodes.get(op, 'copy-done')})", 0) if op else None
