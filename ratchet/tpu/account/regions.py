"""A run as an account: its parts with the cycles of each by place, the kinds of its grid steps, and what costs most.

A region is a part of all runs of a kernel: ``first`` (from its start to the end of the first grid step, windows being
filled), ``last`` (from the last grid step on, results being drained) and ``steady`` in between. A wait belongs to its
own line, or, where the compiler's pipeline waits, to the windows that are waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil

from ratchet.tpu.account.costs import ISSUE_SLOTS, Account, Activity, Cell, Executed, Placed
from ratchet.tpu.account.losses import losses
from ratchet.tpu.chips.units import CAPACITY
from ratchet.tpu.machine.record import Record
from ratchet.values.blame import LINKS, STALLS, WAITS, Blame, LineCost, RegionCost, StepKind
from ratchet.values.occupancy import Occupancy
from ratchet.values.place import Code, Op, Place

PARTS = ("first", "steady", "last", "whole")
KINDS = 6
"""Kinds of grid steps that are kept apart; the rest is put together."""


def blame(record: Record, accounts: Mapping[str, Account], occupancies: Sequence[Occupancy]) -> Blame:
    """Where the cycles of a run went, and what costs most. ``occupancies`` are the kernels'."""
    regions = _regions(record, accounts)
    kinds = _step_kinds(record, accounts)
    sums = Sums()
    for line in (line for region in regions for line in region.lines):
        sums.add_line(line)
    executions: Counter[Place] = Counter()
    for op, (runs, _) in record.steps.op_cycles.items():
        account = accounts.get(record.unit_of_op.get(op, op))
        if account and account.elsewhere:
            executions[account.elsewhere] += runs
    return Blame(
        lines=sums.lines(),
        regions=tuple(regions),
        steps=kinds,
        losses=losses(
            regions,
            kinds,
            occupancies=occupancies,
            cycles=record.cycles,
            executions=executions,
            hbm_cycles=ceil(record.memory.hbm_busy_cycles),
            link_wait_cycles=record.memory.remote_wait_cycles,
            link_busy_cycles=record.link_busy_cycles,
        ),
    )


def _regions(record: Record, accounts: Mapping[str, Account]) -> list[RegionCost]:
    """All regions, in order of time; their cycles sum to the record's."""
    kernels = [
        _kernel_region(name, part, account)
        for name, account in accounts.items()
        for part in PARTS
        if part in account.parts
    ]
    return [*kernels, _outside(record, accounts, record.cycles - sum(region.cycles for region in kernels))]


def _kernel_region(name: str, part: str, account: Account) -> RegionCost:
    recorded, done, placed = account.parts[part]
    sums = Sums()
    sums.add(placed)
    for wait, cycles in recorded.waits.items():
        sums.cells[Cell(account.waits.get(wait.address, Code.PIPELINE), _ACTIVITY[wait.remote])] += cycles
    sums.cells[Cell(Code.PIPELINE, Activity.DELAY)] += recorded.cycles - sums.cells.total()
    waited, busy = sum(recorded.waits.values()), _busy_cycles(done)
    between = sum(cycles for wait, cycles in recorded.waits.items() if wait.remote)
    busy["HBM"] = min(recorded.cycles, ceil(recorded.hbm_cycles))
    bound = {unit: cycles for unit, cycles in busy.items() if unit != "HBM" or cycles > recorded.cycles // 2}
    bound |= {STALLS: done.empty, WAITS: waited - between, LINKS: between}
    return RegionCost(
        kernel=name,
        name=part,
        steps=recorded.steps,
        cycles=recorded.cycles,
        stall_cycles=done.empty,
        wait_cycles=waited,
        busy_cycles=busy,
        critical=max(bound, key=lambda unit: bound[unit]),
        lines=sums.lines(),
        link_wait_cycles=between,
    )


def _outside(record: Record, accounts: Mapping[str, Account], cycles: int) -> RegionCost:
    """Everything that is no kernel: ``cycles`` of the run."""
    sums = Sums()
    for name, account in accounts.items():
        if account.elsewhere is None or account.outside is None:
            continue
        sums.add(account.outside)
        for wait, waited in record.steps.waits.get(name, {}).items():
            op = record.addresses.awaited_op(wait.flag)
            place = Op(name=op, opcode=record.opcodes[op]) if op else account.elsewhere
            sums.cells[Cell(place, _ACTIVITY[wait.remote])] += waited
    sums.cells[Cell(Code.TOP_LEVEL, Activity.DELAY)] += cycles - sums.cells.total()
    lines = sums.lines()
    return RegionCost(
        kernel="",
        name="outside",
        steps=0,
        cycles=cycles,
        stall_cycles=sum(sum(line.stall_cycles.values()) for line in lines),
        wait_cycles=sum(line.wait_cycles for line in lines),
        link_wait_cycles=sum(line.link_wait_cycles for line in lines),
        busy_cycles={},
        critical="",
        lines=lines,
    )


def _busy_cycles(done: Executed) -> dict[str, int]:
    """Least cycles for which each unit is needed: the busiest of its kind, or instructions over slots."""
    busy = {"MXU": int(done.mxu.max()), "XLU": int(done.xlu.max())}
    for slot, capacity in CAPACITY.items():
        if slot not in ("MXU", "XLU", "FILL", "SPILL"):
            busy[slot] = ceil(done.issues[slot] / capacity)
    return busy


def _step_kinds(record: Record, accounts: Mapping[str, Account]) -> tuple[StepKind, ...]:
    """Grid steps by the blocks that they executed, costliest first."""
    kinds = [
        StepKind(
            kernel=name,
            steps=path.steps,
            cycles=path.cycles,
            least_cycles=path.least_cycles,
            most_cycles=path.most_cycles,
            stall_cycles=path.steps * done.empty,
            wait_cycles=path.wait_cycles,
            mxu_cycles=path.steps * int(done.mxu.max()),
        )
        for name in record.steps.kernels
        for path, done in accounts[name].paths
    ]
    kinds.sort(key=lambda kind: -kind.cycles)
    rest = kinds[KINDS:]
    if len(rest) < 2:
        return tuple(kinds)
    added_up = ("steps", "cycles", "stall_cycles", "wait_cycles", "mxu_cycles")
    together = StepKind(
        kernel="",
        least_cycles=min(kind.least_cycles for kind in rest),
        most_cycles=max(kind.most_cycles for kind in rest),
        **{name: sum(getattr(kind, name) for kind in rest) for name in added_up},
    )
    return (*kinds[:KINDS], together)


_ACTIVITY = {False: Activity.WAIT, True: Activity.LINK_WAIT}
"""What a wait is, by whether it is for traffic between chips."""


class Sums:
    """Cycles, instructions and empty slots by place, being added up."""

    def __init__(self) -> None:
        self.cells: Counter[Cell] = Counter()
        self._issues: dict[Place, Counter[str]] = {}
        self._empty_slots: Counter[Place] = Counter()
        """Of issued bundles."""

    def add(self, placed: Placed) -> None:
        """What executions of a listing come to."""
        self.cells.update(placed.cycles)
        for cell, number in placed.empty_slots.items():
            self._empty_slots[cell.place] += number
        for place, issued in placed.issues:
            self._issues.setdefault(place, Counter()).update(issued)

    def add_line(self, line: LineCost) -> None:
        """Adds a line's costs to those of its place."""
        for activity, parts in ((Activity.ISSUE, line.issue_cycles), (Activity.STALL, line.stall_cycles)):
            for unit, cycles in parts.items():
                self.cells[Cell(line.place, activity, unit)] += cycles
        self.cells[Cell(line.place, Activity.WAIT)] += line.wait_cycles - line.link_wait_cycles
        self.cells[Cell(line.place, Activity.LINK_WAIT)] += line.link_wait_cycles
        self.cells[Cell(line.place, Activity.DELAY)] += line.delay_cycles
        self._empty_slots[line.place] += line.empty_slots - ISSUE_SLOTS * (line.wait_cycles + line.delay_cycles)
        self._issues.setdefault(line.place, Counter()).update(line.issues)

    def lines(self) -> tuple[LineCost, ...]:
        """One line per place, costliest first."""
        spent = {cell: cycles for cell, cycles in self.cells.items() if cycles}
        issuing = [place for place, issued in self._issues.items() if issued]
        parts: dict[Place, dict[Activity, dict[str, int]]] = {
            place: {activity: {} for activity in Activity}
            for place in dict.fromkeys([*issuing, *(cell.place for cell in spent)])
        }
        for (place, activity, unit), cycles in sorted(spent.items(), key=lambda item: item[0].unit):
            parts[place][activity][unit] = cycles
        lines = [self._line(place, own) for place, own in parts.items()]
        return tuple(sorted(lines, key=lambda line: (-line.cycles, getattr(line.place, "line", 0))))

    def _line(self, place: Place, parts: Mapping[Activity, Mapping[str, int]]) -> LineCost:
        issues = self._issues.get(place, Counter())
        own, between, delay = (parts[one].get("", 0) for one in (*_ACTIVITY.values(), Activity.DELAY))
        wait = own + between
        return LineCost(
            place=place,
            cycles=sum(sum(cycles.values()) for cycles in parts.values()),
            issue_cycles=parts[Activity.ISSUE],
            stall_cycles=parts[Activity.STALL],
            wait_cycles=wait,
            delay_cycles=delay,
            issues=dict(issues),
            empty_slots=self._empty_slots[place] + ISSUE_SLOTS * (wait + delay),
            spill_stores=issues.get("SPILL", 0),
            spill_loads=issues.get("FILL", 0),
            link_wait_cycles=between,
        )
