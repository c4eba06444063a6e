"""Losses in words: what costs time, most of it first, and what the run would take at best without it.

One rule gives every ceiling: the cycles that are blamed on the loss vanish, but no region gets shorter than what its
other resources need (its matrix products, its stores, its transfers…), waits included. What is left is optimistic: it
takes the rest to fit together as well as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ratchet.account.blame import Region
from ratchet.chips import Chip
from ratchet.chips.units import CAPACITY
from ratchet.values.blame import LineCost, Loss, StepKind

LEAST_SHARE = 0.005
"""Losses below this share of the run are not told."""
BUSY = 0.4
"""From this share of a kernel's cycles on, a unit that is no matrix unit counts as a loss of its own."""
RARE = 0.01
"""Kinds of steps below this share of the iterations are the filling and draining of the pipeline."""

_NAMES = {
    "MXU": "the matrix units",
    "XLU": "the cross-lane units",
    "VALU": "the vector ALUs",
    "VPOP": "the result queues (VPOP)",
    "EUP": "the transcendental unit",
    "VLOAD": "the vector-load slots",
    "VSTORE": "the vector-store slot",
    "SALU": "scalar code",
    "HBM": "HBM",
    "branch": "branches",
    "?": "results",
    "FILL": "spilled values",
}


def losses(
    regions: Sequence[Region],
    kinds: Sequence[StepKind],
    *,
    cycles: int,
    chip: Chip,
    instances: Mapping[str, int],
) -> tuple[Loss, ...]:
    """Everything that costs at least half a percent, largest first; what bounds the kernels comes last.

    Args:
        regions: of :func:`ratchet.account.blame.regions`.
        kinds: of :func:`ratchet.account.blame.step_kinds`.
        cycles: of the whole run.
        chip: for milliseconds.
        instances: executions of each op outside kernels, by what its lines are called.
    """
    teller = _Teller(regions, cycles, chip)
    found = [
        teller.waits(),
        teller.stalls(),
        teller.spills(),
        teller.idle_steps(kinds),
        *(teller.crowded(unit) for unit in CAPACITY if unit not in ("MXU", "FILL", "SPILL")),
        *teller.outside(instances),
    ]
    told = [loss for loss in found if loss is not None and loss.cycles >= LEAST_SHARE * cycles]
    bound = teller.bound()
    return (*sorted(told, key=lambda loss: -loss.cycles), *((bound,) if bound else ()))


class _Teller:
    def __init__(self, regions: Sequence[Region], cycles: int, chip: Chip) -> None:
        self.kernels = [region for region in regions if region.listing]
        self.others = [line for region in regions if not region.listing for line in region.cost.lines]
        self.cycles = max(1, cycles)
        self.kernel_cycles = sum(region.cost.cycles for region in self.kernels)
        self.chip = chip

    def ms(self, cycles: float) -> str:
        return f"{cycles / self.chip.clock_hz * 1e3:.3g} ms"

    def share(self, cycles: float) -> str:
        return _percent(cycles / self.cycles)

    def _loss(self, kind: str, ceilings: Sequence[int], words: str) -> Loss:
        """A loss by the least cycles that each kernel region would then take."""
        ceiling = self.cycles - self.kernel_cycles + sum(ceilings)
        return Loss(
            kind=kind,
            cycles=self.cycles - ceiling,
            ceiling_cycles=ceiling,
            words=words.replace("AT_BEST", f"at best {self.ms(ceiling)}"),
        )

    def _busiest(self, without: Mapping[str, Mapping[str, int]] | None = None) -> str:
        """The unit that needs most of the kernels' cycles."""
        busy: dict[str, int] = {}
        for region in self.kernels:
            own = {**region.cost.busy_cycles, **(without or {}).get(_key(region), {})}
            for unit, needed in own.items():
                busy[unit] = busy.get(unit, 0) + needed
        unit = max(busy, key=lambda name: busy[name])
        return f"{_NAMES[unit]} ({_percent(busy[unit] / max(1, self.kernel_cycles))} busy)"

    # --- the losses ---

    def waits(self) -> Loss | None:
        waited = sum(region.cost.wait_cycles for region in self.kernels)
        if not waited:
            return None
        lines = _top([(line.wait_cycles, line.where) for region in self.kernels for line in region.cost.lines])
        busy = sum(region.cost.busy_cycles["HBM"] for region in self.kernels) / self.kernel_cycles
        cause = (
            "HBM bandwidth: read less, or read it once"
            if busy > 0.8
            else "latency, not bandwidth: fewer, larger or more deeply buffered copies would hide it"
        )
        return self._loss(
            "waits",
            [
                max(region.cost.cycles - region.cost.wait_cycles, *region.cost.busy_cycles.values())
                for region in self.kernels
            ],
            f"{self.share(waited)} of cycles wait for DMAs, most of it {_waiting_for(lines[0][1])} "
            f"(HBM {_percent(busy)} busy: {cause}); without the waits AT_BEST",
        )

    def stalls(self) -> Loss | None:
        empty = sum(region.cost.stall_cycles for region in self.kernels)
        if not empty:
            return None
        units: dict[str, int] = {}
        by_line: dict[str, list[tuple[int, str]]] = {}
        for region in self.kernels:
            for line in region.cost.lines:
                for unit, cycles in line.stall_cycles.items():
                    units[unit] = units.get(unit, 0) + cycles
                    by_line.setdefault(unit, []).append((cycles, line.where))
        told = []
        for cycles, unit in sorted(((cycles, unit) for unit, cycles in units.items() if unit != "?"), reverse=True)[:2]:
            told.append(f"{self.share(cycles)} for {_NAMES.get(unit, unit)}, most at {_top(by_line[unit])[0][1]}")
        waiting = f" ({'; '.join(told)})" if told else ""
        return self._loss(
            "stalls",
            [
                max(
                    region.cost.cycles - region.cost.stall_cycles,
                    region.cost.wait_cycles + max(_units(region.cost.busy_cycles).values()),
                )
                for region in self.kernels
            ],
            f"{self.share(empty)} of cycles are empty bundles that wait for results{waiting}: larger blocks or more "
            "independent work per step would fill them; all filled AT_BEST",
        )

    def spills(self) -> Loss | None:
        stores = sum(region.slots["SPILL"] for region in self.kernels)
        fills = sum(region.slots["FILL"] for region in self.kernels)
        if not stores and not fills:
            return None
        without: dict[str, dict[str, int]] = {}
        ceilings = []
        for region in self.kernels:
            spent = sum(
                line.issue_cycles.get("SPILL", 0) + line.issue_cycles.get("FILL", 0) + line.stall_cycles.get("FILL", 0)
                for line in region.cost.lines
            )
            slots = {"VSTORE": region.slots["VSTORE"] - region.slots["SPILL"]}
            slots["VLOAD"] = -(-(region.slots["VLOAD"] - region.slots["FILL"]) // CAPACITY["VLOAD"])
            without[_key(region)] = slots
            needed = _units({**region.cost.busy_cycles, **slots})
            ceilings.append(max(region.cost.cycles - spent, region.cost.wait_cycles + max(needed.values())))
        every = sum(region.slots["VSTORE"] for region in self.kernels)
        share = every / max(1, self.kernel_cycles)
        return self._loss(
            "spills",
            ceilings,
            f"{stores:,} spill stores and {fills:,} loads: the store slot is {_percent(share)} busy, without them "
            f"{_percent((every - stores) / max(1, self.kernel_cycles))}; more than 64 vector registers are alive "
            f"in a step, smaller pieces of work need fewer; then bound by {self._busiest(without)}: AT_BEST",
        )

    def idle_steps(self, kinds: Sequence[StepKind]) -> Loss | None:
        working = {kind.kernel for kind in kinds if kind.mxu_cycles}
        every = sum(kind.steps for kind in kinds)
        idle = [k for k in kinds if k.kernel in working and not k.mxu_cycles and k.steps >= max(2, RARE * every)]
        if not idle:
            return None
        spent, steps = sum(kind.cycles for kind in idle), sum(kind.steps for kind in idle)
        waited = sum(kind.wait_cycles for kind in idle) / max(1, spent)
        return Loss(
            kind="idle steps",
            cycles=spent,
            ceiling_cycles=self.cycles - spent,
            words=f"{steps:,} of {every:,} grid steps do no matrix work and take {self.share(spent)} of cycles "
            f"({_percent(waited)} of that waiting for DMAs): a grid or an index map without them would be "
            f"at best {self.ms(self.cycles - spent)}",
        )

    def crowded(self, unit: str) -> Loss | None:
        """A unit that is no matrix unit and busy much of the time, spills left out."""
        spilled = {"VSTORE": "SPILL", "VLOAD": "FILL"}.get(unit, "")
        busy = sum(region.cost.busy_cycles[unit] for region in self.kernels)
        if spilled:
            busy -= sum(region.slots[spilled] for region in self.kernels) // CAPACITY[unit]
        if not self.kernel_cycles or busy < BUSY * self.kernel_cycles:
            return None
        ceilings, where = [], []
        for region in self.kernels:
            spent = sum(line.issue_cycles.get(unit, 0) for line in region.cost.lines)
            where += [(line.issue_cycles.get(unit, 0), line.where) for line in region.cost.lines]
            others = {name: needed for name, needed in _units(region.cost.busy_cycles).items() if name != unit}
            ceilings.append(max(region.cost.cycles - spent, region.cost.wait_cycles + max(others.values())))
        return self._loss(
            "bound",
            ceilings,
            f"{_NAMES[unit]} {'are' if _NAMES[unit].endswith('s') else 'is'} {_percent(busy / self.kernel_cycles)} busy"
            f"{' (spills left out)' if spilled else ''}, most for {_top(where)[0][1]}; without that work AT_BEST",
        )

    def outside(self, instances: Mapping[str, int]) -> list[Loss]:
        return [self._outside(line, instances.get(line.where, 1)) for line in self.others]

    def _outside(self, line: LineCost, times: int) -> Loss:
        doing = "waiting for " if line.wait_cycles == line.cycles else ""
        return Loss(
            kind="outside",
            cycles=line.cycles,
            ceiling_cycles=self.cycles - line.cycles,
            words=f"outside the kernel: {doing}{line.where}{f', {times}x,' if times > 1 else ''} takes "
            f"{self.ms(line.cycles)}, {self.share(line.cycles)}",
        )

    def bound(self) -> Loss | None:
        """What no edit of the schedule gets below: not a loss, and so told last."""
        needed = sum(region.cost.busy_cycles["MXU"] for region in self.kernels)
        if not needed:
            return None
        return Loss(
            kind="bound",
            cycles=0,
            ceiling_cycles=needed,
            words=f"the matrix products alone need {self.ms(needed)}: the busiest matrix unit is occupied "
            f"{self.share(needed)} of the time",
        )


def _key(region: Region) -> str:
    return f"{region.listing}/{region.cost.name}"


def _units(busy: Mapping[str, int]) -> dict[str, int]:
    """Without HBM, whose transfers go on while the program waits."""
    return {unit: needed for unit, needed in busy.items() if unit != "HBM"}


def _top(pairs: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Sums by name, largest first."""
    found: dict[str, int] = {}
    for cycles, name in pairs:
        found[name] = found.get(name, 0) + cycles
    return sorted(((cycles, name) for name, cycles in found.items()), reverse=True)


def _waiting_for(where: str) -> str:
    return where.removeprefix("waits ") if where.startswith("waits for ") else f"at {where}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"
