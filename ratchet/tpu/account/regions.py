"""The parts of a run, with the cycles of each by place: the regions of every kernel, and what is outside them.

A region is a part of all runs of a kernel: ``first`` (from its start to the end of the first grid step, windows being
filled), ``last`` (from the last grid step on, results being drained) and ``steady`` in between. A wait belongs to its
own line, or, where the compiler's pipeline waits, to the windows that are waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil

import numpy as np

from ratchet.tpu.account.shares import ISSUE_SLOTS, Activity, Cell, Shares, whole
from ratchet.tpu.account.windows import WindowFlags
from ratchet.tpu.chips.units import CAPACITY
from ratchet.tpu.dump.files import TOP
from ratchet.tpu.machine.grid_steps import Part
from ratchet.tpu.machine.record import Record
from ratchet.values.blame import STALLS, WAITS, LineCost, RegionCost
from ratchet.values.place import Code, Op, Place, SourceLine

PARTS = ("first", "steady", "last", "whole")


def place_of_listing(record: Record, name: str) -> Op | Code | None:
    """Where all of a listing belongs that is no kernel: the HLO op, or the top level. None for a kernel."""
    if record.units[name][1]:
        return None
    if name == TOP:
        return Code.TOP_LEVEL
    ops = sorted(op for op, unit in record.unit_of_op.items() if unit == name) or [name]
    return Op(name=ops[0], opcode=record.opcodes.get(ops[0], "runtime"), alike=len(ops) - 1)


def regions(record: Record, shares: Mapping[str, Shares]) -> list[RegionCost]:
    """All regions, in order of time; their cycles sum to the record's."""
    kernels: list[RegionCost] = []
    for name, (translated, is_kernel) in record.units.items():
        if is_kernel and name in record.steps.kernels:
            windows = WindowFlags(translated.listing)
            parts = record.steps.kernels[name].parts
            kernels += [
                _kernel_region(name, part, parts[part], shares[name], windows) for part in PARTS if part in parts
            ]
    return [*kernels, _outside(record, shares, record.cycles - sum(region.cycles for region in kernels))]


def _kernel_region(name: str, part: str, recorded: Part, shares: Shares, windows: WindowFlags) -> RegionCost:
    costs = _Costs()
    costs.add_listing(shares, recorded.counts)
    for (address, _), cycles in recorded.waits.items():
        costs.cells[Cell(windows.place(address, shares.where(address)), Activity.WAIT)] += cycles
    costs.cells[Cell(Code.PIPELINE, Activity.DELAY)] += recorded.cycles - costs.cells.total()
    times = shares.times(recorded.counts)
    stalled, waited = int(times[shares.empty].sum()), sum(recorded.waits.values())
    busy = _busy_cycles(shares, times)
    busy["HBM"] = min(recorded.cycles, ceil(recorded.hbm_cycles))
    bound = {unit: cycles for unit, cycles in busy.items() if unit != "HBM" or cycles > recorded.cycles // 2}
    bound |= {STALLS: stalled, WAITS: waited}
    return RegionCost(
        kernel=name,
        name=part,
        steps=recorded.steps,
        cycles=recorded.cycles,
        stall_cycles=stalled,
        wait_cycles=waited,
        busy_cycles=busy,
        critical=max(bound, key=lambda unit: bound[unit]),
        lines=costs.lines(),
    )


def _outside(record: Record, shares: Mapping[str, Shares], cycles: int) -> RegionCost:
    """Everything that is no kernel: ``cycles`` of the run."""
    costs = _Costs()
    for name, (translated, is_kernel) in record.units.items():
        if is_kernel:
            continue
        costs.add_listing(shares[name], translated.counts)
        for (address, flag), waited in record.steps.waits.get(name, {}).items():
            op = record.op_of_flag(flag)
            place = Op(name=op, opcode=record.opcodes[op]) if op else shares[name].where(address)[0]
            costs.cells[Cell(place, Activity.WAIT)] += waited
    costs.cells[Cell(Code.TOP_LEVEL, Activity.DELAY)] += cycles - costs.cells.total()
    lines = costs.lines()
    return RegionCost(
        kernel="",
        name="outside",
        steps=0,
        cycles=cycles,
        stall_cycles=sum(sum(line.stall_cycles.values()) for line in lines),
        wait_cycles=sum(line.wait_cycles for line in lines),
        busy_cycles={},
        critical="",
        lines=lines,
    )


def _busy_cycles(shares: Shares, times: np.ndarray) -> dict[str, int]:
    """Least cycles for which each unit is needed: the busiest of its kind, or instructions over slots."""
    issued = shares.slot_issues(times)
    busy = {"MXU": int((times @ shares.mxu).max()), "XLU": int((times @ shares.xlu).max())}
    for slot, capacity in CAPACITY.items():
        if slot not in ("MXU", "XLU", "FILL", "SPILL"):
            busy[slot] = ceil(issued[slot] / capacity)
    return busy


def add_up(regions: Iterable[RegionCost]) -> tuple[LineCost, ...]:
    """The lines of all regions together, costliest first."""
    costs = _Costs()
    for region in regions:
        for line in region.lines:
            costs.add_line(line)
    return costs.lines()


class _Costs:
    """Cycles, instructions and empty slots by place, being added up."""

    def __init__(self) -> None:
        self.cells: Counter[Cell] = Counter()
        self._issues: dict[Place, Counter[str]] = {}
        self._empty_slots: Counter[Place] = Counter()
        """Of issued bundles."""

    def add_listing(self, shares: Shares, counts: Iterable[int]) -> None:
        """What a listing costs whose blocks were executed ``counts`` times, waits and delays left out."""
        times = shares.times(list(counts))
        self.cells.update(whole(shares.cycles(times), int(times.sum())))
        exact = shares.empty_slots(times)
        for cell, number in whole(exact, int(sum(exact.values()))).items():
            self._empty_slots[cell.place] += number
        for place, slots in shares.issues(times).items():
            self._issues.setdefault(place, Counter()).update(slots)

    def add_line(self, line: LineCost) -> None:
        """Adds a line's costs to those of its place."""
        for activity, parts in ((Activity.ISSUE, line.issue_cycles), (Activity.STALL, line.stall_cycles)):
            for unit, cycles in parts.items():
                self.cells[Cell(line.place, activity, unit)] += cycles
        self.cells[Cell(line.place, Activity.WAIT)] += line.wait_cycles
        self.cells[Cell(line.place, Activity.DELAY)] += line.delay_cycles
        self._empty_slots[line.place] += line.empty_slots - ISSUE_SLOTS * (line.wait_cycles + line.delay_cycles)
        self._issues.setdefault(line.place, Counter()).update(line.issues)

    def lines(self) -> tuple[LineCost, ...]:
        """One line per place, costliest first."""
        parts: dict[Place, dict[tuple[Activity, str], int]] = {
            place: {} for place, slots in self._issues.items() if slots
        }
        for (place, activity, unit), cycles in self.cells.items():
            if cycles:
                parts.setdefault(place, {})[activity, unit] = cycles
        lines = [self._line(place, own) for place, own in parts.items()]
        return tuple(sorted(lines, key=lambda line: (-line.cycles, _line_number(line.place))))

    def _line(self, place: Place, parts: Mapping[tuple[Activity, str], int]) -> LineCost:
        slots = self._issues.get(place, Counter())
        wait, delay = parts.get((Activity.WAIT, ""), 0), parts.get((Activity.DELAY, ""), 0)
        return LineCost(
            place=place,
            cycles=sum(parts.values()),
            issue_cycles=_by_unit(parts, Activity.ISSUE),
            stall_cycles=_by_unit(parts, Activity.STALL),
            wait_cycles=wait,
            delay_cycles=delay,
            issues=dict(slots),
            empty_slots=self._empty_slots[place] + ISSUE_SLOTS * (wait + delay),
            spill_stores=slots.get("SPILL", 0),
            spill_loads=slots.get("FILL", 0),
        )


def _by_unit(parts: Mapping[tuple[Activity, str], int], activity: Activity) -> dict[str, int]:
    return {
        unit: cycles for (done, unit), cycles in sorted(parts.items(), key=lambda item: item[0][1]) if done is activity
    }


def _line_number(place: Place) -> int:
    return place.line if isinstance(place, SourceLine) else 0
