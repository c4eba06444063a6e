"""Losses as numbers: what each saves at best, in which order, and from which size on."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from ratchet.tpu.account.losses import LEAST_SHARE, losses
from ratchet.tpu.chips.units import CAPACITY
from ratchet.values.blame import LineCost, RegionCost, StepKind
from ratchet.values.loss import (
    CrowdedUnit,
    FormBound,
    IdleSteps,
    LinkWaits,
    Loss,
    LossKind,
    MatrixBound,
    NothingLeft,
    Outside,
    Spills,
    Stalls,
    UnitStall,
    WaitCause,
    Waits,
)
from ratchet.values.occupancy import Limit, Limited, Occupancy
from ratchet.values.place import Code, Op, Place, SourceLine, Window, Windows

NEAR, FAR = SourceLine(file="k.py", line=3), SourceLine(file="k.py", line=7)
WINDOW = Windows(windows=(Window(kind="input", number=0),))
CYCLES = 1000


def line(place: Place, cycles: int, **parts: object) -> LineCost:
    values: dict[str, object] = {
        "issue_cycles": {},
        "stall_cycles": {},
        "wait_cycles": 0,
        "delay_cycles": 0,
        "issues": {},
        "empty_slots": 0,
        "spill_stores": 0,
        "spill_loads": 0,
    }
    return LineCost(place=place, cycles=cycles, **(values | parts))  # type: ignore[arg-type]


def kernel(lines: tuple[LineCost, ...], **busy: int) -> RegionCost:
    units = dict.fromkeys([unit for unit in CAPACITY if unit not in ("FILL", "SPILL")], 0)
    return RegionCost(
        kernel="k",
        name="whole",
        steps=1,
        cycles=sum(line.cycles for line in lines),
        stall_cycles=sum(sum(line.stall_cycles.values()) for line in lines),
        wait_cycles=sum(line.wait_cycles for line in lines),
        busy_cycles={**units, "HBM": 0, **busy},
        critical="",
        lines=lines,
    )


def outside(*lines: LineCost) -> RegionCost:
    cycles = sum(line.cycles for line in lines)
    return replace(kernel(lines), kernel="", name="outside", cycles=cycles, busy_cycles={})


COPY = Op(name="copy.1", opcode="copy")
L = TypeVar("L")


def one(kind: type[L], *regions: RegionCost, kinds: tuple[StepKind, ...] = (), executions: int = 1) -> L:
    """The only loss of a kind in a run of these regions."""
    cycles = sum(region.cycles for region in regions)
    ran = {line.place: executions for region in regions for line in region.lines}
    (found,) = [loss for loss in losses(regions, kinds, cycles=cycles, executions=ran) if isinstance(loss, kind)]
    return found


def test_waits_vanish_down_to_what_hbm_needs() -> None:
    lines = (line(WINDOW, 600, wait_cycles=600), line(NEAR, 400, issue_cycles={"VALU": 400}))
    assert one(Waits, kernel(lines, VALU=100, HBM=300)) == Waits(
        cycles=600,
        ceiling_cycles=400,
        wait_cycles=600,
        place=WINDOW,
        hbm_busy_share=0.3,
        cause=WaitCause.LATENCY,
    )
    bandwidth = one(Waits, kernel(lines, VALU=100, HBM=900))
    assert (bandwidth.cycles, bandwidth.ceiling_cycles, bandwidth.cause) == (100, 900, WaitCause.BANDWIDTH)


def test_stalls_name_all_that_is_waited_for() -> None:
    lines = (
        line(NEAR, 500, stall_cycles={"XLU": 100, "MXU results": 396, "branch": 4}),
        line(FAR, 500, stall_cycles={"XLU": 150, "MXU": 50, "EUP": 40}, issue_cycles={"VALU": 260}),
    )
    assert one(Stalls, kernel(lines, VALU=65)) == Stalls(
        cycles=740,
        ceiling_cycles=260,
        stall_cycles=740,
        units=(
            UnitStall(unit="MXU results", cycles=396, place=NEAR),
            UnitStall(unit="XLU", cycles=250, place=FAR),
            UnitStall(unit="MXU", cycles=50, place=FAR),
            UnitStall(unit="EUP", cycles=40, place=FAR),
        ),
    )


SPILLING = (
    line(NEAR, 700, issue_cycles={"SPILL": 250, "FILL": 50, "VSTORE": 400}, issues={"VSTORE": 500, "SPILL": 300}),
    line(FAR, 300, issue_cycles={"VALU": 300}, issues={"VLOAD": 90, "FILL": 60}),
)


def test_spills_say_what_would_bind_without_them() -> None:
    assert one(Spills, kernel(SPILLING, VSTORE=500, VLOAD=30, VALU=240)) == Spills(
        cycles=300,
        ceiling_cycles=700,
        stores=300,
        loads=60,
        store_slot_share=0.5,
        store_slot_share_without=0.2,
        next_unit="VALU",
        next_unit_share=0.24,
    )


def test_a_slot_that_is_busy_and_never_full_is_no_loss() -> None:
    regions = [kernel(SPILLING, VSTORE=900, VLOAD=30, VALU=800)]
    found = losses(regions, (), cycles=CYCLES, executions={})
    assert not [loss for loss in found if isinstance(loss, CrowdedUnit)]


FULL = Occupancy(
    kernel="k",
    unit="MXU",
    cycles=CYCLES,
    stretches=(),
    limits=(Limited(limit=Limit(unit="VALU", empty=False), cycles=600, busy=100, place=NEAR),),
    turns=(),
)


def test_a_full_slot_gives_way_to_the_next_unit() -> None:
    lines = (line(NEAR, 550, issue_cycles={"VALU": 550}), line(FAR, 450, issue_cycles={"VALU": 50, "SALU": 400}))
    expected = CrowdedUnit(
        cycles=600, ceiling_cycles=400, unit="VALU", full_share=0.6, busy_share=0.7, place=NEAR, without_spills=False
    )
    for others, cycles in (({"EUP": 300}, 500), ({"MXU": 700}, 300)):
        found = losses([kernel(lines, VALU=700, **others)], (), cycles=CYCLES, executions={}, occupancies=[FULL])
        (crowded,) = [loss for loss in found if isinstance(loss, CrowdedUnit)]
        assert crowded == replace(expected, cycles=cycles, ceiling_cycles=CYCLES - cycles)


def kind(steps: int, cycles: int, *, mxu: int = 0, wait: int = 0, kernel: str = "k") -> StepKind:
    return StepKind(
        kernel=kernel,
        steps=steps,
        cycles=cycles,
        least_cycles=1,
        most_cycles=cycles,
        stall_cycles=0,
        wait_cycles=wait,
        mxu_cycles=mxu,
    )


def test_idle_steps_are_those_of_a_kernel_that_works_in_others() -> None:
    kinds = (kind(90, 500, mxu=400), kind(60, 300, wait=240), kind(1, 50), kind(30, 150, kernel="other"))
    assert one(IdleSteps, kernel((line(NEAR, CYCLES),)), kinds=kinds) == IdleSteps(
        cycles=300, ceiling_cycles=700, steps=60, of_steps=181, wait_share=0.8
    )


def test_what_is_outside_is_a_loss_by_itself() -> None:
    run = (kernel((line(NEAR, 800),)), outside(line(COPY, 200, wait_cycles=200)))
    assert one(Outside, *run, executions=3) == Outside(
        cycles=200, ceiling_cycles=800, place=COPY, executions=3, waiting=True
    )


def test_losses_are_sorted_the_bound_comes_last_and_small_ones_are_left_out() -> None:
    small = int(LEAST_SHARE * CYCLES) - 1
    regions = [
        kernel((line(NEAR, 600, wait_cycles=300), line(FAR, 300)), MXU=90),
        outside(line(Op(name="a", opcode="copy"), 100 - small), line(Code.TOP_LEVEL, small)),
    ]
    found = losses(regions, (), cycles=CYCLES, executions={}, link_wait_cycles=250, link_busy_cycles=700)
    assert [type(loss) for loss in found] == [Waits, LinkWaits, Outside, MatrixBound, FormBound]
    assert found[1] == LinkWaits(
        cycles=250, ceiling_cycles=750, wait_cycles=250, busiest_link_share=0.7, cause=WaitCause.LATENCY
    )
    assert found[3] == MatrixBound(cycles=0, ceiling_cycles=90)
    assert found[4] == FormBound(cycles=300, ceiling_cycles=700, unit="links")


def found_in(*regions: RegionCost, **resources: int) -> tuple[Loss, ...]:
    return losses(regions, (), cycles=sum(region.cycles for region in regions), executions={}, **resources)


BUSY = (line(NEAR, 500, stall_cycles={"XLU": 300}, issue_cycles={"VALU": 200}), line(WINDOW, 500, wait_cycles=500))


def test_no_ceiling_is_below_what_a_resource_needs_for_all_of_the_run() -> None:
    """Transfers of several regions overlap, so that HBM may need more than its share of each."""
    (kernels,) = regions = [kernel(BUSY, VALU=60, HBM=300)]
    for loss in found_in(*regions, hbm_cycles=900):
        assert loss.kind in (LossKind.STALLS, LossKind.WAITS, LossKind.FORM)
        assert (loss.ceiling_cycles, loss.cycles) == (900, 100)
    for resources in ({"MXU": 850}, {"VSTORE": 850}):
        for loss in found_in(replace(kernels, busy_cycles={**kernels.busy_cycles, **resources})):
            assert loss.ceiling_cycles >= 850
    assert {loss.ceiling_cycles for loss in found_in(*regions, link_busy_cycles=880)} == {880}
    *others, form = found_in(*regions, hbm_cycles=300)
    assert min(loss.ceiling_cycles for loss in others) == 500
    assert form == FormBound(cycles=700, ceiling_cycles=300, unit="HBM")


def test_a_form_is_bound_by_the_unit_that_it_needs_longest_and_by_what_is_outside() -> None:
    """Regions come one after the other; transfers go on beside them."""
    regions = [
        kernel((line(NEAR, 500),), VALU=300, MXU=200),
        kernel((line(FAR, 400),), MXU=100),
        outside(line(COPY, 90)),
    ]
    assert found_in(*regions)[-1] == FormBound(cycles=500, ceiling_cycles=490, unit="VALU")
    assert found_in(*regions, hbm_cycles=600)[-1] == FormBound(cycles=390, ceiling_cycles=600, unit="HBM")
    assert found_in(regions[1], outside(line(COPY, 400)))[-1] == FormBound(
        cycles=300, ceiling_cycles=500, unit="outside"
    )


def test_spills_go_with_their_stores() -> None:
    every = found_in(kernel(SPILLING, VSTORE=900, VLOAD=30, VALU=240))
    (spills,) = [loss for loss in every if isinstance(loss, Spills)]
    assert spills.ceiling_cycles == 700
    assert all(loss.ceiling_cycles >= 900 for loss in every if not isinstance(loss, Spills))


def test_an_op_outside_goes_with_its_transfers() -> None:
    regions = kernel((line(NEAR, 600),), HBM=500), outside(line(COPY, 400))
    found, _ = found_in(*regions, hbm_cycles=970)
    assert (found.kind, found.ceiling_cycles) == (LossKind.OUTSIDE, 600)


@pytest.mark.parametrize("unit", ["HBM", "MXU", "VSTORE"])
def test_a_run_at_what_one_resource_needs_has_nothing_left(unit: str) -> None:
    first, *_ = found_in(kernel(BUSY, **{unit: 960}))
    assert first == NothingLeft(cycles=40, ceiling_cycles=960, unit=unit, saturated=True)
    assert not any(isinstance(loss, NothingLeft) for loss in found_in(kernel(BUSY, **{unit: 940})))


def test_a_run_without_a_loss_has_nothing_left_either() -> None:
    found, _ = found_in(kernel((line(NEAR, CYCLES),), HBM=400))
    assert found == NothingLeft(cycles=600, ceiling_cycles=400, unit="HBM", saturated=False)
    assert found_in(outside(line(Code.TOP_LEVEL, 3))) == (
        Outside(cycles=3, ceiling_cycles=0, place=Code.TOP_LEVEL, executions=1, waiting=False),
    )
