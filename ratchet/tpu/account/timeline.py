"""What the machine recorded -> :class:`ratchet.values.Timeline`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ratchet.tpu.account.blame import blame
from ratchet.tpu.account.regions import place_of_listing
from ratchet.tpu.account.shares import Shares
from ratchet.tpu.account.spans import make_spans
from ratchet.tpu.chips import Chip
from ratchet.tpu.chips.units import CAPACITY, SLOTS
from ratchet.tpu.machine.dma import GRANULE_BYTES
from ratchet.tpu.machine.record import Record
from ratchet.values import LinkUse, OpCost, Timeline
from ratchet.values.omission import LocalCopies, LongProgram, Omission, Unmodelled
from ratchet.values.place import Code, Op

LONG_PROGRAM_BUNDLES = 20_000
"""Programs from this length on may pay for fetching instruction overlays, which nobody has measured."""


Known = dict[tuple[int, Op | Code | None], Shares]
"""What is known of listings, by their identity and where all of each belongs: the chips of a slice execute the same."""


def shares_of(record: Record, *, compiler: str, known: Known) -> dict[str, Shares]:
    """What is known of every listing without running it; what is new is added to ``known``.

    Raises Refusal for an opcode whose unit is not known.
    """
    found = {}
    for name, (translated, _) in record.units.items():
        place = place_of_listing(record, name)
        key = id(translated.listing), place
        if key not in known:
            blocks = [(block.start, block.end) for block in translated.blocks]
            known[key] = Shares(
                translated.listing, blocks, compiler=compiler, elsewhere=place, delay_slots=translated.delay_slots
            )
        found[name] = known[key]
    return found


def build(
    record: Record,
    *,
    chip: Chip,
    compiler: str,
    detail: bool,
    links: Sequence[LinkUse] = (),
    known: Known | None = None,
) -> Timeline:
    """Puts the timeline of one chip together.

    Args:
        links: what went over each link of its slice.
        known: of the other chips of its slice.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for an opcode whose unit is not known.
    """
    shares = shares_of(record, compiler=compiler, known={} if known is None else known)
    executed = [(shares[name], shares[name].times(unit.counts)) for name, (unit, _) in record.units.items()]
    slots = Counter(dict.fromkeys(SLOTS, 0))
    for listing, times in executed:
        slots.update(listing.slot_issues(times))
    memory = record.memory
    steps = sum(_grid_steps(record, name) for name in record.units)
    return Timeline(
        chip=chip.name,
        compiler=compiler,
        clock_hz=chip.clock_hz,
        cycles=record.cycles,
        executed_bundles=sum(int(times.sum()) for _, times in executed),
        empty_bundles=sum(int(times[listing.empty].sum()) for listing, times in executed),
        dma_wait_cycles=memory.wait_cycles,
        slot_issues=dict(slots),
        slot_capacity=dict(CAPACITY),
        mxu_busy_cycles=sum(int((times @ listing.mxu).sum()) for listing, times in executed) // chip.mxu_per_core,
        hbm_read_bytes=memory.read_granules * GRANULE_BYTES,
        hbm_write_bytes=memory.write_granules * GRANULE_BYTES,
        grid_steps=steps,
        ops=_op_costs(record),
        spans=make_spans(record, shares, detail=detail, mxu_per_core=chip.mxu_per_core),
        not_modelled=_not_modelled(record),
        blame=blame(record, shares, links),
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
        op = record.op_of_flag(flag)
        if op:
            waits[op] += cycles
    return waits


def _not_modelled(record: Record) -> tuple[Omission, ...]:
    omissions: list[Omission] = [Unmodelled.SURROUNDINGS]
    for name, (translated, _) in record.units.items():
        length = len(translated.listing.bundles)
        if length >= LONG_PROGRAM_BUNDLES:
            omissions.append(LongProgram(program=name, bundles=length))
    if record.memory.local_granules:
        omissions.append(LocalCopies(bytes=record.memory.local_granules * GRANULE_BYTES))
    return (*omissions, *record.not_modelled)
