"""What the machine recorded -> :class:`ratchet.values.Timeline`: each listing's costs, what its executions come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ratchet.tpu.account.costs import Known, accounts_of
from ratchet.tpu.account.occupancy import occupancy
from ratchet.tpu.account.regions import blame
from ratchet.tpu.account.spans import make_spans
from ratchet.tpu.chips import Chip
from ratchet.tpu.chips.units import CAPACITY, SLOTS
from ratchet.tpu.machine.dma import GRANULE_BYTES
from ratchet.tpu.machine.record import Record, Run
from ratchet.values import OpCost, Timeline
from ratchet.values.occupancy import Occupancy
from ratchet.values.omission import LocalCopies, Omission, Unmodelled


def timeline_of(run: Run, *, chip: Chip, compiler: str, detail: bool = False, known: Known | None = None) -> Timeline:
    """The timeline of the slowest chip; on a slice with that of every chip in ``chips``.

    Args:
        run: what the machine recorded.
        chip: that ran.
        compiler: version, for messages.
        detail: keep many more single grid steps in the spans.
        known: costs of the program's listings, of other runs; what is new is added.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for an opcode whose unit is not known.
    """
    known = {} if known is None else known
    decided = run.undecided is None
    if run.links:
        chips = [_of_chip(one, known, decided, chip=chip, compiler=compiler, detail=detail) for one in run.chips]
        slowest = max(chips, key=lambda timeline: timeline.cycles)
        timeline = replace(slowest, chips=tuple(chips), links=run.links)
    else:
        timeline = _of_chip(run.slowest, known, decided, chip=chip, compiler=compiler, detail=detail)
    undecided = (run.undecided,) if run.undecided else ()
    return replace(timeline, not_modelled=(*undecided, *timeline.not_modelled))


def _of_chip(record: Record, known: Known, decided: bool, *, chip: Chip, compiler: str, detail: bool) -> Timeline:
    accounts = accounts_of(record, compiler=compiler, known=known)
    wholes = [account.whole for account in accounts.values()]
    occupancies = tuple(
        _occupancy(record, name, known, chip.mxu_per_core)
        for name, account in accounts.items()
        if account.elsewhere is None and account.whole.bundles
    )
    memory = record.memory
    engines = [one.memory for one in (record, *record.beside)]
    return Timeline(
        chip=chip.name,
        compiler=compiler,
        clock_hz=chip.clock_hz,
        cycles=record.cycles,
        executed_bundles=sum(whole.bundles for whole in wholes),
        empty_bundles=sum(whole.empty for whole in wholes),
        dma_wait_cycles=memory.wait_cycles,
        slot_issues={slot: sum(whole.issues[slot] for whole in wholes) for slot in SLOTS},
        slot_capacity=dict(CAPACITY),
        mxu_busy_cycles=sum(int(whole.mxu.sum()) for whole in wholes) // chip.mxu_per_core,
        hbm_read_bytes=sum(one.read_granules for one in engines) * GRANULE_BYTES,
        hbm_write_bytes=sum(one.write_granules for one in engines) * GRANULE_BYTES,
        grid_steps=sum(_grid_steps(record, name) for name in record.units),
        ops=_op_costs(record),
        not_modelled=_not_modelled(record),
        blame=blame(record, accounts, occupancies),
        spans=make_spans(record, accounts, detail=detail, mxu_per_core=chip.mxu_per_core),
        chip_index=record.chip_index,
        place=record.place,
        ici_bytes=record.sent_bytes,
        ici_wait_cycles=memory.remote_wait_cycles,
        ici_cycles=_under_way(record),
        launch_cycles=record.launch_cycles,
        control=record.control() if decided else None,
        occupancy=occupancies,
    )


def _occupancy(record: Record, name: str, known: Known, matrix_units: int) -> Occupancy:
    translated = record.units[name].translated
    return occupancy(
        name,
        translated.listing,
        known[id(translated.listing), None],
        counts=translated.counts,
        waits=record.steps.waits.get(name, {}),
        matrix_units=matrix_units,
    )


def _under_way(record: Record) -> int:
    """Cycles after the launch in which a message to or from the chip was under way; 0 where not all are kept."""
    if record.more_messages:
        return 0
    spent, reached = 0.0, float(record.launch_cycles)
    own = [one for one in record.messages if record.chip_index in (one.source, one.target) and one.size_bytes]
    for message in sorted(own, key=lambda one: one.begin):
        begin, end = max(message.begin, reached), min(message.arrival, record.cycles)
        spent += max(0.0, end - begin)
        reached = max(reached, end)
    return round(spent)


def _grid_steps(record: Record, name: str) -> int:
    unit, kernel = record.units[name], record.steps.kernels.get(name)
    if not unit.is_kernel:
        return 0
    translated = unit.translated
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
        for name, (runs, cycles) in record.steps.op_cycles.items()
    ]
    costs += [
        OpCost(name=name, opcode=record.opcodes[name], executions=1, cycles=cycles)
        for name, cycles in _top_level_waits(record).items()
    ]
    rest = record.cycles - sum(cost.cycles for cost in costs)
    costs.append(OpCost(name="", opcode="", executions=1, cycles=rest))
    return tuple(sorted(costs, key=lambda cost: -cost.cycles))


def _top_level_waits(record: Record) -> Mapping[str, int]:
    """Cycles waited per asynchronous op of the entry computation."""
    waits: Counter[str] = Counter()
    for flag, cycles in record.memory.waited_on.items():
        op = record.addresses.awaited_op(flag)
        if op:
            waits[op] += cycles
    return waits


def _not_modelled(record: Record) -> tuple[Omission, ...]:
    omissions: list[Omission] = [Unmodelled.SURROUNDINGS]
    if record.memory.local_granules:
        omissions.append(LocalCopies(bytes=record.memory.local_granules * GRANULE_BYTES))
    return (*omissions, *record.not_modelled)
