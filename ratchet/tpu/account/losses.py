"""Losses: what costs time, most of it first, and what the run would take at best without it. Pure.

One rule gives every ceiling: the cycles that are blamed on the loss vanish, but no region gets shorter than what its
other resources need (its matrix products, its stores, its transfers…), waits included, and the run no shorter than what
HBM, the links, the matrix units and the store slot need for all of it. What is left is optimistic: it takes the rest to
fit together as well as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

from ratchet.tpu.chips.units import CAPACITY
from ratchet.values.blame import OUTSIDE, LineCost, RegionCost, StepKind
from ratchet.values.loss import (
    CrowdedUnit,
    FormBound,
    IdleSteps,
    LinkWaits,
    Loss,
    MatrixBound,
    NothingLeft,
    Outside,
    Spills,
    Stalls,
    UnitStall,
    WaitCause,
    Waits,
)
from ratchet.values.occupancy import Occupancy
from ratchet.values.place import Place

LEAST_SHARE = 0.005
"""Losses below this share of the run are left out."""
CROWDED = 0.05
"""From this share of the kernels' cycles on in which a slot that is no matrix unit's is full, it is a loss."""
NEAR = 0.05
"""A run that takes at most this share of its time longer than one resource needs has nothing left to gain."""
SATURATED = 0.8
"""From this share of its time busy on, HBM or a link is waited for because of its bandwidth."""
RARE = 0.01
"""Kinds of steps below this share of the iterations are the filling and draining of the pipeline."""

_SPILL_OF = {"VSTORE": "SPILL", "VLOAD": "FILL"}
"""The part of a slot's instructions that spills and loads of spilled values make."""


def losses(  # noqa: PLR0913 - a run seen from all sides
    regions: Sequence[RegionCost],
    kinds: Sequence[StepKind],
    *,
    cycles: int,
    executions: Mapping[Place, int],
    occupancies: Sequence[Occupancy] = (),
    hbm_cycles: int = 0,
    link_wait_cycles: int = 0,
    link_busy_cycles: int = 0,
) -> tuple[Loss, ...]:
    """Everything that costs at least half a percent, largest first; what bounds the kernels comes last.

    Where nothing is left to gain, ``NothingLeft`` comes before all of them.

    Args:
        regions: all of the run, in order of time.
        kinds: of the grid steps.
        cycles: of the whole run.
        executions: how often each op outside kernels ran, by its place.
        occupancies: of the kernels.
        hbm_cycles: for which HBM carried bytes, kernels and all else.
        link_wait_cycles: of the run, in which traffic between chips was waited for.
        link_busy_cycles: for which the busiest link between chips carried bytes.
    """
    run = _Run(
        regions=regions, occupancies=occupancies, cycles=cycles, hbm_cycles=hbm_cycles, link_cycles=link_busy_cycles
    )
    every: list[Loss] = [loss for loss in run.kernel_losses(kinds) if loss is not None]
    every += [
        Outside(
            cycles=line.cycles,
            ceiling_cycles=cycles - line.cycles,
            place=line.place,
            executions=executions.get(line.place, 1),
            waiting=line.wait_cycles == line.cycles,
        )
        for line in run.outside
    ]
    if link_wait_cycles:
        busy = link_busy_cycles / cycles
        every.append(
            LinkWaits(
                cycles=link_wait_cycles,
                ceiling_cycles=cycles - link_wait_cycles,
                wait_cycles=link_wait_cycles,
                busiest_link_share=busy,
                cause=_cause(busy),
            )
        )
    every = [run.reachable(loss) for loss in every]
    every = sorted((loss for loss in every if loss.cycles >= LEAST_SHARE * cycles), key=lambda loss: -loss.cycles)
    first = run.nothing_left(every[0].cycles if every else 0)
    return tuple(loss for loss in (first, *every, run.bound(), run.form()) if loss is not None)


def _cause(busy_share: float) -> WaitCause:
    return WaitCause.BANDWIDTH if busy_share > SATURATED else WaitCause.LATENCY


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run seen as its kernels' regions and the rest."""

    regions: Sequence[RegionCost]
    occupancies: Sequence[Occupancy]
    cycles: int
    hbm_cycles: int
    link_cycles: int

    @cached_property
    def kernels(self) -> Sequence[RegionCost]:
        return [region for region in self.regions if region.kernel]

    @cached_property
    def lines(self) -> Sequence[LineCost]:
        """Of the kernels."""
        return [line for region in self.kernels for line in region.lines]

    @property
    def outside(self) -> Iterator[LineCost]:
        return (line for region in self.regions if not region.kernel for line in region.lines)

    @cached_property
    def kernel_cycles(self) -> int:
        """At least 1: shares are of it."""
        return max(1, sum(region.cycles for region in self.kernels))

    @cached_property
    def needs(self) -> Mapping[str, int]:
        """Cycles for which each resource is needed that no other order of the same work relieves."""
        needed = {unit: self._busy(unit) for unit in ("HBM", "MXU", "VSTORE")}
        needed["HBM"] = max(needed["HBM"], self.hbm_cycles)
        needed["links"] = self.link_cycles
        return {unit: min(cycles, self.cycles) for unit, cycles in needed.items()}

    def reachable(self, loss: Loss) -> Loss:
        """The loss with a ceiling that is no lower than ``needs``, less what would go with the loss itself."""
        needs = dict(self.needs)
        if isinstance(loss, Spills):
            needs["VSTORE"] -= self._issues("SPILL")
        if isinstance(loss, Outside):
            needs["HBM"] = self._busy("HBM")
        ceiling = max(loss.ceiling_cycles, *needs.values())
        return replace(loss, cycles=self.cycles - ceiling, ceiling_cycles=ceiling)

    def nothing_left(self, largest: int) -> NothingLeft | None:
        """``largest``: what the largest loss costs; 0 where none is worth a line."""
        unit, needed = max(self.needs.items(), key=lambda item: item[1])
        saturated = max(largest, self.cycles - needed) <= NEAR * self.cycles
        if not self.kernels or (largest and not saturated):
            return None
        return NothingLeft(cycles=self.cycles - needed, ceiling_cycles=needed, unit=unit, saturated=saturated)

    def bound(self) -> MatrixBound | None:
        needed = self._busy("MXU")
        return MatrixBound(cycles=0, ceiling_cycles=needed) if needed else None

    def form(self) -> FormBound | None:
        """Regions come one after the other, and HBM's and the links' transfers may be beside all of them."""
        if not self.kernels:
            return None
        needed: Counter[str] = Counter()
        for region in self.kernels:
            own = ((unit, cycles) for unit, cycles in region.busy_cycles.items() if unit != "HBM")
            unit, cycles = max(own, key=lambda item: item[1])
            needed[unit] += cycles
        outside = self.cycles - sum(region.cycles for region in self.kernels)
        least = max(outside + needed.total(), self.hbm_cycles, self.link_cycles)
        beside = {"HBM": self.hbm_cycles, "links": self.link_cycles, OUTSIDE: outside, **needed}
        unit = max(beside, key=lambda name: beside[name])
        return FormBound(cycles=self.cycles - least, ceiling_cycles=least, unit=unit)

    def kernel_losses(self, kinds: Sequence[StepKind]) -> Iterator[Loss | None]:
        yield self._waits()
        yield self._stalls()
        yield self._spills()
        yield self._idle_steps(kinds)
        for unit in CAPACITY:
            if unit not in ("MXU", "FILL", "SPILL"):
                yield self._crowded(unit)

    def _waits(self) -> Waits | None:
        waited = sum(_own_waits(region) for region in self.kernels)
        if not waited:
            return None
        busy = self._busy("HBM") / self.kernel_cycles
        return Waits(
            **self._ceiling(max(r.cycles - _own_waits(r), *r.busy_cycles.values()) for r in self.kernels),
            wait_cycles=waited,
            place=self._costliest(_own_waits),
            hbm_busy_share=busy,
            cause=_cause(busy),
            first_cycles=sum(_own_waits(region) for region in self.kernels if region.name == "first"),
            last_cycles=sum(_own_waits(region) for region in self.kernels if region.name == "last"),
        )

    def _stalls(self) -> Stalls | None:
        empty = sum(region.stall_cycles for region in self.kernels)
        if not empty:
            return None
        by_unit: Counter[str] = Counter()
        for line in self.lines:
            by_unit.update(line.stall_cycles)
        named = [(unit, cycles) for unit, cycles in by_unit.most_common() if cycles >= LEAST_SHARE * self.cycles]
        return Stalls(
            **self._ceiling(_without(region, region.stall_cycles, region.busy_cycles) for region in self.kernels),
            stall_cycles=empty,
            units=tuple(
                UnitStall(
                    unit=unit,
                    cycles=cycles,
                    place=self._costliest(lambda line, unit=unit: line.stall_cycles.get(unit, 0)),  # type: ignore[misc]
                )
                for unit, cycles in named
            ),
        )

    def _spills(self) -> Spills | None:
        stores, loads, stored = self._issues("SPILL"), self._issues("FILL"), self._issues("VSTORE")
        if not stores and not loads:
            return None
        busy: Counter[str] = Counter()
        least = []
        for region in self.kernels:
            spent = sum(
                line.issue_cycles.get("SPILL", 0) + line.issue_cycles.get("FILL", 0) + line.stall_cycles.get("FILL", 0)
                for line in region.lines
            )
            others = {
                **region.busy_cycles,
                "VSTORE": _issues(region.lines, "VSTORE") - _issues(region.lines, "SPILL"),
                "VLOAD": ceil((_issues(region.lines, "VLOAD") - _issues(region.lines, "FILL")) / CAPACITY["VLOAD"]),
            }
            busy.update(others)
            least.append(_without(region, spent, others))
        ((next_unit, next_cycles),) = busy.most_common(1)
        return Spills(
            **self._ceiling(least),
            stores=stores,
            loads=loads,
            store_slot_share=stored / self.kernel_cycles,
            store_slot_share_without=(stored - stores) / self.kernel_cycles,
            next_unit=next_unit,
            next_unit_share=next_cycles / self.kernel_cycles,
        )

    def _idle_steps(self, kinds: Sequence[StepKind]) -> IdleSteps | None:
        working = {kind.kernel for kind in kinds if kind.mxu_cycles}
        every = sum(kind.steps for kind in kinds)
        idle = [k for k in kinds if k.kernel in working and not k.mxu_cycles and k.steps >= max(2, RARE * every)]
        if not idle:
            return None
        spent = sum(kind.cycles for kind in idle)
        return IdleSteps(
            cycles=spent,
            ceiling_cycles=self.cycles - spent,
            steps=sum(kind.steps for kind in idle),
            of_steps=every,
            wait_share=sum(kind.wait_cycles for kind in idle) / max(1, spent),
        )

    def _crowded(self, unit: str) -> CrowdedUnit | None:
        """A slot that is no matrix unit's and full for a good part of the time."""
        full = [
            (part.cycles, part.cycles - (part.busy if one.unit != unit else 0), part.place)
            for one in self.occupancies
            for part in one.limits
            if part.limit.unit == unit and not part.limit.empty
        ]
        cycles, lost = sum(part for part, _, _ in full), sum(part for _, part, _ in full)
        if cycles < max(1, CROWDED * self.kernel_cycles):
            return None
        # A region gets no shorter than its other units need, so that not all of it may go.
        others = [max(n for name, n in one.busy_cycles.items() if name not in (unit, "HBM")) for one in self.kernels]
        spare = (max(0, one.cycles - one.wait_cycles - n) for one, n in zip(self.kernels, others, strict=True))
        saved = min(lost, sum(spare))
        *_, place = max(full, key=lambda part: part[0])
        spilled = _SPILL_OF.get(unit)
        busy = self._busy(unit) - (self._issues(spilled) // CAPACITY[unit] if spilled else 0)
        return CrowdedUnit(
            cycles=saved,
            ceiling_cycles=self.cycles - saved,
            unit=unit,
            full_share=cycles / self.kernel_cycles,
            busy_share=busy / self.kernel_cycles,
            place=place or self._costliest(lambda line: line.issue_cycles.get(unit, 0)),
            without_spills=bool(spilled),
        )

    def _ceiling(self, least: Iterable[int]) -> dict[str, int]:
        """Fields of a loss, by the least cycles that each kernel region would then take."""
        saved = sum(region.cycles for region in self.kernels) - sum(least)
        return {"cycles": saved, "ceiling_cycles": self.cycles - saved}

    def _busy(self, unit: str) -> int:
        return sum(region.busy_cycles[unit] for region in self.kernels)

    def _issues(self, slot: str) -> int:
        return _issues(self.lines, slot)

    def _costliest(self, cost: Callable[[LineCost], int]) -> Place:
        """The place with the largest sum, the first of equal ones."""
        sums: Counter[Place] = Counter()
        for line in self.lines:
            sums[line.place] += cost(line)
        return max(sums, key=lambda place: sums[place])


def _own_waits(of: RegionCost | LineCost) -> int:
    """Cycles that are waited for DMAs and semaphores of the chip's own."""
    return of.wait_cycles - of.link_wait_cycles


def _issues(lines: Sequence[LineCost], slot: str) -> int:
    """Executed instructions of a slot."""
    return sum(line.issues.get(slot, 0) for line in lines)


def _without(region: RegionCost, spent: int, busy: Mapping[str, int]) -> int:
    """Least cycles of a region without those ``spent``; HBM's transfers go on while the program waits."""
    return max(region.cycles - spent, region.wait_cycles + max(n for unit, n in busy.items() if unit != "HBM"))
