"""What the machine recorded -> :class:`ratchet.values.Timeline`: counts and losses in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ratchet.chips import Chip
from ratchet.schedule.dma import GRANULE_BYTES, Ends, Memory
from ratchet.schedule.spans import make_spans
from ratchet.schedule.steps import Steps
from ratchet.schedule.translate import Translated
from ratchet.schedule.units import CAPACITY, SLOTS, mxu_cycles, slots
from ratchet.status import Refusal, Status
from ratchet.values import OpCost, Timeline

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
    steps: Steps
    """What happened in each grid step, and where was waited."""
    memory: Memory
    flag_name: Callable[[int], str]
    not_modelled: tuple[str, ...]

    def op_of_flag(self, flag: int) -> str:
        """The asynchronous op of the entry computation whose end a sync flag tells, or ``""``."""
        name = self.flag_name(flag)
        if "(output of " not in name or "-start" not in name:
            return ""
        return name.partition("(output of ")[2].partition("@")[0].replace("-start", "-done")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Executed bundles of one listing."""

    bundles: int
    empty: int
    slots: Mapping[str, int]
    mxu_cycles: int
    """Unit-cycles: summed over the matrix units."""


def static_slots(translated: Translated, *, compiler: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per bundle of a listing: slot counts (bundles x slot classes), matrix unit-cycles, and whether it is empty.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for an opcode that is not known.
    """
    bundles = translated.listing.bundles
    counts = np.zeros((len(bundles), len(SLOTS)), np.int64)
    mxu = np.zeros(len(bundles), np.int64)
    empty = np.ones(len(bundles), bool)
    column = {name: i for i, name in enumerate(SLOTS)}
    rows: list[int] = []
    columns: list[int] = []
    for address, bundle in enumerate(bundles):
        if bundle:
            empty[address] = False
        for instruction in bundle:
            classes, busy = slots(instruction), mxu_cycles(instruction.opcode)
            if classes is None or busy is None:
                raise Refusal(
                    Status.SCHEDULE_UNKNOWN,
                    f"{translated.listing.file} bundle {address:#x} ({compiler}): "
                    f"`{instruction.opcode} {instruction.operands[:120]}`: which unit this occupies is not known. "
                    "The schedule machine does not guess: report it, or write the kernel without it.",
                )
            for slot in classes:
                rows.append(address)
                columns.append(column[slot])
            mxu[address] += busy
    np.add.at(counts, (rows, columns), 1)
    return counts, mxu, empty


def executions(translated: Translated) -> np.ndarray:
    """How often each bundle of a listing was executed."""
    steps = np.zeros(len(translated.listing.bundles) + 1, np.int64)
    for block, count in zip(translated.blocks, translated.counts, strict=True):
        steps[block.start] += count
        steps[block.end] -= count
    return np.cumsum(steps[:-1])


def count(translated: Translated, *, compiler: str) -> Counts:
    """Executed slots of one listing."""
    per_bundle, mxu, empty = static_slots(translated, compiler=compiler)
    times = executions(translated)
    return Counts(
        bundles=int(times.sum()),
        empty=int(times[empty].sum()),
        slots=dict(zip(SLOTS, (int(n) for n in times @ per_bundle), strict=True)),
        mxu_cycles=int(times @ mxu),
    )


def build(record: Record, *, chip: Chip, compiler: str, detail: bool) -> Timeline:
    """Puts the timeline together. Raises Refusal for opcodes whose unit is not known."""
    counts = {name: count(translated, compiler=compiler) for name, (translated, _) in record.units.items()}
    total = Counts(
        bundles=sum(c.bundles for c in counts.values()),
        empty=sum(c.empty for c in counts.values()),
        slots={slot: sum(c.slots[slot] for c in counts.values()) for slot in SLOTS},
        mxu_cycles=sum(c.mxu_cycles for c in counts.values()),
    )
    memory = record.memory
    steps = sum(_grid_steps(record, name) for name in record.units)
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
        spans=make_spans(record, counts, detail=detail, mxu_per_core=chip.mxu_per_core),
        losses=_losses(record, total, chip),
        not_modelled=_not_modelled(record, total),
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
    """Cycles waited per asynchronous copy of the entry computation: its flag belongs to the copy's own allocation."""
    found: dict[str, int] = {}
    for flag, cycles in record.memory.waited_on.items():
        name = record.flag_name(flag)
        if "(output of " in name and "-start" in name:
            op = name.partition("(output of ")[2].partition("@")[0]
            found[op.replace("-start", "-done")] = cycles
    return found


def _losses(record: Record, total: Counts, chip: Chip) -> tuple[str, ...]:
    """Sentences, the costliest first. Each is a share of all cycles."""
    cycles = max(1, record.cycles)
    found: list[tuple[float, str]] = []

    empty = total.empty / cycles
    found.append(
        (
            empty,
            f"{empty:.0%} of cycles are empty bundles: dependency latency; "
            "larger blocks or more independent work per step would fill them",
        )
    )
    waits = record.memory.wait_cycles / cycles
    busy = record.memory.hbm_busy_cycles / cycles
    cause = "HBM bandwidth" if busy > 0.8 else "DMA latency; larger or more buffered blocks would hide it"
    found.append((waits, f"{waits:.0%} of cycles wait for DMAs (HBM busy {busy:.0%}): {cause}"))

    kernels = {name for name, (_, is_kernel) in record.units.items() if is_kernel}
    for name, (runs, spent) in record.op_cycles.items():
        if record.unit_of_op.get(name) in kernels or name.startswith("<"):
            continue
        share = spent / cycles
        what = f"{name} ({record.opcodes.get(name, '')}, {runs}x)"
        found.append((share, f"outside the kernel: {what} takes {spent / chip.clock_hz * 1e3:.3g} ms, {share:.0%}"))
    for name, spent in _top_level_waits(record).items():
        share = spent / cycles
        time = f"{spent / chip.clock_hz * 1e3:.3g} ms, {share:.0%}"
        found.append((share * 0.999, f"outside the kernel: waiting for {name} takes {time}"))
    issued = total.bundles - total.empty
    for slot, capacity in CAPACITY.items():
        if slot in ("MXU", "FILL", "SPILL"):
            continue
        share = total.slots[slot] / (capacity * cycles)
        if share < 0.3:
            continue
        spilled = {"VSTORE": "SPILL", "VLOAD": "FILL"}.get(slot)
        also = f", {total.slots[spilled] / max(1, total.slots[slot]):.0%} of it spills" if spilled else ""
        names = {"VSTORE": "vector-store slot", "VLOAD": "vector-load slots", "VALU": "vector-ALU slots"}
        found.append((share * issued / cycles, f"{names.get(slot, slot + ' slots')} {share:.0%} busy{also}"))
    mxu = total.mxu_cycles / chip.mxu_per_core / cycles
    idle = 1 - mxu
    found.append((idle * 0.05 if mxu else 0, f"matrix units {mxu:.0%} busy"))
    found.sort(key=lambda item: -item[0])
    return tuple(text for share, text in found if share >= 0.005)


def _not_modelled(record: Record, total: Counts) -> tuple[str, ...]:
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
