"""What the machine recorded -> :class:`ratchet.values.Timeline`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ratchet.account.blame import add_up, place_of_listing, regions, step_kinds
from ratchet.account.losses import losses
from ratchet.account.shares import Shares
from ratchet.account.spans import make_spans
from ratchet.chips import Chip
from ratchet.chips.units import CAPACITY, SLOTS
from ratchet.machine.dma import GRANULE_BYTES, DmaEngine, Ends
from ratchet.machine.grid_steps import GridSteps
from ratchet.machine.translate import Translated
from ratchet.values import OpCost, Timeline
from ratchet.values.blame import Blame

LONG_PROGRAM_BUNDLES = 20_000
"""Programs from this length on may pay for fetching instruction overlays, which nobody has measured."""


class OpRun(NamedTuple):
    """One execution of an HLO op."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Record:
    """What happened in one run."""

    cycles: int
    units: Mapping[str, tuple[Translated, bool]]
    """Per listing: its translation with block counts, and whether it is a Pallas kernel."""
    op_cycles: Mapping[str, tuple[int, int]]
    """Per HLO op: executions and cycles."""
    op_runs: Ends
    opcodes: Mapping[str, str]
    unit_of_op: Mapping[str, str]
    steps: GridSteps
    """What happened in each grid step, and where was waited."""
    memory: DmaEngine
    flag_name: Callable[[int], str]
    op_of_flag: Callable[[int], str]
    """The asynchronous op of the entry computation whose end a sync flag signals, or ``""``."""
    not_modelled: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Executed bundles of one listing."""

    bundles: int
    empty: int
    slots: Mapping[str, int]
    mxu_cycles: int
    """Unit-cycles: summed over the matrix units."""


def shares_of(record: Record, *, compiler: str) -> dict[str, Shares]:
    """What is known of every listing without running it. Raises Refusal for an opcode whose unit is not known."""
    return {
        name: Shares(
            translated.listing,
            [(block.start, block.end) for block in translated.blocks],
            compiler=compiler,
            elsewhere=place_of_listing(record, name),
        )
        for name, (translated, _) in record.units.items()
    }


def count(shares: Shares, counts: Sequence[int]) -> Counts:
    """Executed slots of one listing, from executions per block."""
    times = shares.times(counts)
    return Counts(
        bundles=int(times.sum()),
        empty=int(times[shares.empty].sum()),
        slots=dict(zip(SLOTS, (int(n) for n in times @ shares.slots), strict=True)),
        mxu_cycles=int((times @ shares.mxu).sum()),
    )


def build(record: Record, *, chip: Chip, compiler: str, detail: bool) -> Timeline:
    """Puts the timeline together. Raises Refusal for opcodes whose unit is not known."""
    shares = shares_of(record, compiler=compiler)
    counts = {name: count(shares[name], translated.counts) for name, (translated, _) in record.units.items()}
    total = Counts(
        bundles=sum(c.bundles for c in counts.values()),
        empty=sum(c.empty for c in counts.values()),
        slots={slot: sum(c.slots[slot] for c in counts.values()) for slot in SLOTS},
        mxu_cycles=sum(c.mxu_cycles for c in counts.values()),
    )
    memory = record.memory
    steps = sum(_grid_steps(record, name) for name in record.units)
    blame = _blame(record, shares, chip)
    return Timeline(
        chip=chip.name,
        compiler=compiler,
        clock_hz=chip.clock_hz,
        cycles=record.cycles,
        executed_bundles=total.bundles,
        empty_bundles=total.empty,
        dma_wait_cycles=memory.wait_cycles,
        slot_issues=dict(total.slots),
        slot_capacity=dict(CAPACITY),
        mxu_busy_cycles=total.mxu_cycles // chip.mxu_per_core,
        hbm_read_bytes=memory.read_granules * GRANULE_BYTES,
        hbm_write_bytes=memory.write_granules * GRANULE_BYTES,
        grid_steps=steps,
        ops=_op_costs(record),
        spans=make_spans(record, shares, detail=detail, mxu_per_core=chip.mxu_per_core),
        losses=tuple(loss.words for loss in blame.losses),
        not_modelled=_not_modelled(record),
        blame=blame,
    )


def _blame(record: Record, shares: Mapping[str, Shares], chip: Chip) -> Blame:
    found = regions(record, shares)
    kinds = step_kinds(record, shares)
    instances: dict[str, int] = {}
    for name, (runs, _) in record.op_cycles.items():
        unit = record.unit_of_op.get(name, name)
        place = place_of_listing(record, unit) if unit in record.units else None
        if place is not None:
            instances[place.file] = instances.get(place.file, 0) + runs
    return Blame(
        lines=add_up(found),
        regions=tuple(region.cost for region in found),
        steps=kinds,
        losses=losses(found, kinds, cycles=record.cycles, chip=chip, instances=instances),
    )


def _grid_steps(record: Record, name: str) -> int:
    translated, is_kernel = record.units[name]
    if not is_kernel:
        return 0
    kernel = record.steps.kernels.get(name)
    iterations = len(kernel.starts) if kernel else 0
    runs = translated.counts[0]
    # The pipeline's prologue and epilogue are iterations that branch past the body, which follows the loop's head.
    body = translated.counts[translated.loop_block + 1] if translated.loop_block is not None else runs
    if iterations - 2 * runs <= body <= iterations:
        return max(runs, body)
    return max(runs, iterations)


def _op_costs(record: Record) -> tuple[OpCost, ...]:
    costs = [
        OpCost(name=name, opcode=record.opcodes.get(name, "runtime"), executions=runs, cycles=cycles)
        for name, (runs, cycles) in record.op_cycles.items()
    ]
    rest = record.cycles - sum(cost.cycles for cost in costs)
    waits = _top_level_waits(record)
    for name, cycles in waits.items():
        costs.append(OpCost(name=name, opcode="copy-done", executions=1, cycles=cycles))
        rest -= cycles
    costs.append(OpCost(name="(top level)", opcode="", executions=1, cycles=rest))
    return tuple(sorted(costs, key=lambda cost: -cost.cycles))


def _top_level_waits(record: Record) -> dict[str, int]:
    """Cycles waited per asynchronous op of the entry computation."""
    found: dict[str, int] = {}
    for flag, cycles in record.memory.waited_on.items():
        op = record.op_of_flag(flag)
        if op:
            found[op] = found.get(op, 0) + cycles
    return found


def _not_modelled(record: Record) -> tuple[str, ...]:
    found = ["clock throttling under power limits, contention for VMEM ports, the launch from the host"]
    for name, (translated, _) in record.units.items():
        length = len(translated.listing.bundles)
        if length >= LONG_PROGRAM_BUNDLES:
            found.append(f"instruction fetches of {name}: {length} bundles is a very long program")
    if record.memory.local_granules:
        size = record.memory.local_granules * GRANULE_BYTES
        found.append(
            f"measured speed of DMAs between on-chip memories ({size} bytes here): bandwidth and latency assumed"
        )
    return (*found, *record.not_modelled)
