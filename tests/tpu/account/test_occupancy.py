"""Occupancy: every executed bundle in one stretch and one limit; limits, lines and ends of turns by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.account.costs import costs_of, executed
from ratchet.tpu.account.occupancy import MOST, occupancy
from ratchet.tpu.dump.instruction import Instruction
from ratchet.tpu.dump.listing import Listing
from ratchet.tpu.machine.record import Waited
from ratchet.values import Timeline
from ratchet.values.encoding import decode, encode
from ratchet.values.occupancy import DMA, TURN_END, Limit, Occupancy, Stretch
from ratchet.values.place import Code, SourceLine
from tests.tpu.account.test_blame import at, bundles, instruction
from tests.tpu.machine.golden_dumps import COMPILERS, modelled
from tests.tpu.machine.test_golden import CYCLES

Bundle = tuple[Instruction, ...]


@pytest.fixture(params=CYCLES)
def timeline(request: pytest.FixtureRequest) -> Timeline:
    return modelled(*request.param)


def test_stretches_hold_every_bundle_and_wait_of_a_kernel(timeline: Timeline) -> None:
    regions = [region for region in timeline.blame.regions if region.kernel]
    assert {one.kernel for one in timeline.occupancy} == {region.kernel for region in regions}
    for one in timeline.occupancy:
        own = [region for region in regions if region.kernel == one.kernel]
        lines = [line for region in own for line in region.lines]
        assert one.cycles == sum(region.cycles for region in own) - sum(line.delay_cycles for line in lines)
        check(one)
        assert sum(each.empty for each in one.stretches) == sum(region.stall_cycles for region in own)
        assert sum(each.wait_cycles for each in one.stretches) == sum(region.wait_cycles for region in own)
        issued = Counter[str]()
        for line in lines:
            issued.update(line.issues)
        assert sum((Counter(each.issues) for each in one.stretches), Counter()) == +issued


def check(one: Occupancy) -> None:
    """What is true of every one."""
    assert len(one.stretches) <= MOST
    assert one.cycles == sum(each.cycles for each in one.stretches) == sum(each.cycles for each in one.limits)
    assert all(before.end <= after.begin for before, after in pairwise(one.stretches))
    for each in one.stretches:
        assert each.bundles <= each.executions * (each.end - each.begin)
        assert each.empty <= each.bundles
        assert each.products + each.weights <= each.issues.get("MXU", 0)
        # Halves are rounded, and what waits for a unit is shared out among those that may be waited for.
        assert abs(sum(each.waits.values()) - each.empty) <= len(each.waits) + 1
        assert 0 < len(each.lines) <= 2 or not each.issues
    in_turns = sum(each.cycles for each in one.limits if each.limit.unit == TURN_END)
    assert sum(each.cycles for each in one.turns) <= in_turns
    assert [each.cycles for each in one.limits] == sorted((each.cycles for each in one.limits), reverse=True)


def test_it_is_evidence(timeline: Timeline) -> None:
    kind = tuple[Occupancy, ...]
    assert decode(kind, encode(timeline.occupancy)) == timeline.occupancy


# --- by hand ---


def run(
    program: Sequence[Bundle],
    blocks: Sequence[tuple[int, int]],
    counts: Sequence[int],
    waits: Mapping[Waited, int] | None = None,
) -> Occupancy:
    listing = Listing(file="f", bundles=list(program), allocations={})
    costs = costs_of(listing, blocks, compiler="c", delay_slots=4)
    found = occupancy("k", listing, costs, counts=counts, waits=waits or {}, matrix_units=4)
    times = executed(costs, counts).times
    assert sum(each.bundles for each in found.stretches) == int(times.sum())
    return found


def products(cycles: int, *others: Instruction, line: int = 3) -> list[Bundle]:
    """For so many cycles, all four matrix units are in use."""
    issues = {slot: (instruction(f"vmatmul.bf16.gmra.mxu{slot}", line),) for slot in range(4)}
    return [(*issues.get(cycle % 16, ()), *others) for cycle in range(cycles)]


STORE = instruction("vst", 7)
MATRIX, STORES = (Limit(unit=unit, empty=False) for unit in ("MXU", "VSTORE"))


def test_a_slot_that_is_full_for_a_while_is_not_hidden_by_the_average() -> None:
    program = [*products(2048), *[(STORE,)] * 256, *products(2048)]
    found = run(program, [(0, len(program))], [5])
    assert found.unit == "MXU"
    assert [one.limit for one in found.stretches] == [MATRIX, STORES, MATRIX]
    middle = found.stretches[1]
    assert (middle.begin, middle.end, middle.executions, middle.bundles) == (2048, 2304, 5, 1280)
    assert (middle.products, middle.issues, middle.lines) == (0, {"VSTORE": 1280}, (at(7),))
    assert middle.busy < 5 * 3  # the last products are under way for three cycles more
    assert not any(one.turn_end for one in found.stretches)
    assert [(one.limit, one.cycles, one.place) for one in found.limits] == [
        (MATRIX, 5 * 4096, at(3)),
        (STORES, 5 * 256, at(7)),
    ]
    assert found.limits[0].busy > 0.99 * found.limits[0].cycles


def looped(body: list[Bundle]) -> list[Bundle]:
    """A loop at line 9 from its first bundle on, with the delay slots of its branch."""
    branch = instruction("sbr.rel", 9, "99", "target bundleno = 0 (0x0)")
    return [*body, (branch,), *[()] * 4]


def test_ends_of_turns_are_from_the_last_product_to_the_first_of_the_next() -> None:
    program = looped([*[(instruction("vadd.f32", 1),)] * 100, *products(1024), *[(instruction("vld", 2),)] * 50])
    found = run(program, [(0, len(program))], [10])
    (turns,) = found.turns
    assert (turns.place, turns.begin, turns.end, turns.turns) == (at(9), 0, len(program), 10)
    # A window of 64 bundles is as full as is usual in the block with a quarter less than that.
    assert abs(turns.cycles - 10 * (100 + 50 + 5)) <= 10 * 2 * 16
    first, middle, *last = found.stretches
    assert first.turn_end
    assert not middle.turn_end
    assert all(one.turn_end for one in last)
    assert (first.lines[0], last[0].lines[0]) == (at(1), at(2))
    assert {one.limit.unit: one.cycles for one in found.limits}[TURN_END] == turns.cycles


def test_short_blocks_without_products_are_between_turns_and_long_ones_are_work() -> None:
    for size, is_end in ((100, True), (1000, False)):
        program = [*products(1024), *[(instruction("vadd.f32", 1),)] * size]
        found = run(program, [(0, 1024), (1024, 1024 + size)], [4, 4])
        assert found.stretches[-1].turn_end is is_end


def test_waits_are_their_own_limit() -> None:
    program = [*products(1024), (instruction("vwait.ge", 5, "s1_s1"),), *products(64)]
    found = run(program, [(0, len(program))], [2], {Waited(1024, 7, False): 9000, Waited(1024, 8, True): 1000})
    assert found.cycles == 2 * len(program) + 10_000
    (waits,) = [one for one in found.limits if one.limit.unit == DMA]
    assert (waits.cycles, waits.place) == (10_000, at(5))
    assert DMA in [one.limit.unit for one in found.stretches]


def test_without_products_the_fullest_slot_is_the_unit() -> None:
    found = run([(STORE,)] * 100 + [(instruction("vadd.f32", 1),)] * 30, [(0, 130)], [3])
    assert (found.unit, found.busy) == ("VSTORE", 300)


def test_a_chip_with_more_slots_is_seen_by_its_bundles() -> None:
    found = run([(STORE, STORE), (STORE,)] * 64, [(0, 128)], [1])
    assert (found.busy, found.stretches[0].issues["VSTORE"]) == (96, 192)


def test_what_is_not_executed_is_left_out() -> None:
    program = [*products(256), *[(STORE,)] * 256, *products(256)]
    found = run(program, [(0, 256), (256, 512), (512, 768)], [3, 0, 3])
    assert "VSTORE" not in {slot for one in found.stretches for slot in one.issues}
    assert run(program, [(0, 768)], [0]).stretches == ()


@given(st.lists(st.tuples(bundles, st.integers(0, 9)), min_size=1, max_size=6), st.integers(1, 40))
def test_any_program_is_cut_without_a_gap(parts: list[tuple[list[Bundle], int]], repeat: int) -> None:
    program: list[Bundle] = []
    blocks = []
    for part, _ in parts:
        blocks.append((len(program), len(program) + repeat * len(part)))
        program += part * repeat
    found = run(program, blocks, [times for _, times in parts])
    if found.cycles:
        check(found)
    executed_bundles = sum(times * (end - begin) for (begin, end), (_, times) in zip(blocks, parts, strict=True))
    assert found.cycles == executed_bundles


# --- a real kernel ---


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_kernel_with_a_grid(compiler: str) -> None:
    (one,) = modelled(compiler, "flash").occupancy
    assert one.unit == "MXU"
    assert Code.PIPELINE in [turns.place for turns in one.turns]
    assert {place.file for each in one.stretches for place in each.lines if isinstance(place, SourceLine)} == {
        "programs.py"
    }
    busiest = max(one.stretches, key=_rate)
    assert _rate(busiest) > 2 * one.busy / one.cycles


def _rate(one: Stretch) -> float:
    return one.busy / one.cycles
