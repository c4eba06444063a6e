"""What earlier experiments say about a loss."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ratchet.loop.recorded import from_file, to_bytes
from ratchet.loop.refuted import refuted
from ratchet.values import Conditions, Decision, Row
from ratchet.values.loss import CrowdedUnit, Loss, MatrixBound, Outside, Refuted, key_of
from ratchet.values.place import Code, Op, SourceLine
from ratchet.values.status import Status
from tests.loop.stage import CONDITIONS
from tests.loop.test_decide import row as judged_row

STARTED = "20261122-100000-0001"


def crowded(cycles: int, unit: str = "VALU") -> Loss:
    return CrowdedUnit(
        cycles=cycles,
        ceiling_cycles=1000,
        unit=unit,
        full_share=0.3,
        busy_share=0.6,
        place=SourceLine(file="kernel.py", line=3),
        without_spills=False,
    )


def row(
    name: str, decision: str, status: Status = Status.PASS, score: float = 10.0, conditions: Conditions = CONDITIONS
) -> Row:
    made = judged_row(score if status is not Status.WRONG_VALUES else None, status, conditions)
    return dataclasses.replace(made, id=name, decision=decision, status=status.name)


BASELINE = row(STARTED, Decision.BASELINE)
NOW = row("20261122-109999-ffff", Decision.REVERTED, Status.NOT_BETTER)
KERNEL = BASELINE.kernel


def hindsight(tried: list[Row], losses: dict[str, tuple[Loss, ...]]) -> dict[object, Refuted]:
    return dict(refuted([*tried, NOW], kernel=KERNEL, like=NOW, losses=lambda name: losses.get(name, ())))


@pytest.mark.parametrize("status", [Status.NOT_BETTER, Status.UNCHECKED])
@pytest.mark.parametrize(("after", "removed"), [((), True), ((crowded(50),), True), ((crowded(51),), False)])
def test_a_loss_removed_without_a_gain(status: Status, after: tuple[Loss, ...], removed: bool) -> None:
    bound = MatrixBound(cycles=0, ceiling_cycles=900)
    tried = [BASELINE, row("b", Decision.REVERTED, status)]
    found = hindsight(tried, {STARTED: (crowded(100), bound), "b": (*after, bound)})
    left = after[0].cycles if after else 0
    assert found == ({key_of(crowded(1)): Refuted(id="b", before_cycles=100, after_cycles=left)} if removed else {})


def test_another_unit_is_another_loss() -> None:
    tried = [BASELINE, row("b", Decision.REVERTED, Status.NOT_BETTER)]
    found = hindsight(tried, {STARTED: (crowded(100), crowded(90, "EUP")), "b": (crowded(100), crowded(1, "EUP"))})
    assert list(found) == [key_of(crowded(1, "EUP"))]


def test_so_is_another_op_outside_of_kernels() -> None:
    one, two = (
        Outside(cycles=9, ceiling_cycles=90, place=Op(name=name, opcode="copy"), executions=1, waiting=False)
        for name in ("copy.1", "copy.2")
    )
    assert key_of(one) != key_of(two)
    assert key_of(one) == key_of(dataclasses.replace(one, cycles=1))
    assert key_of(dataclasses.replace(one, place=Code.TOP_LEVEL)) != key_of(one)


@pytest.mark.parametrize(
    "second",
    [
        row("b", Decision.REVERTED, Status.WRONG_VALUES),
        row("b", Decision.JUDGED),
        row("b", Decision.REVERTED, Status.NOT_BETTER, conditions=dataclasses.replace(CONDITIONS, chip="v6e")),
        dataclasses.replace(row("b", Decision.REVERTED, Status.NOT_BETTER), kernel="other.py"),
    ],
    ids=["wrong values", "judged alone", "another chip", "another kernel"],
)
def test_what_refutes_nothing(second: Row) -> None:
    assert hindsight([BASELINE, second], {STARTED: (crowded(100),), "b": (crowded(1),)}) == {}


def test_without_evidence_of_the_experiment_nothing_is_refuted() -> None:
    tried = [BASELINE, row("b", Decision.REVERTED, Status.NOT_BETTER)]
    assert hindsight(tried, {STARTED: (crowded(100),)}) == {}


def test_a_kept_experiment_that_removes_it_withdraws_that() -> None:
    tried = [BASELINE, row("b", Decision.REVERTED, Status.NOT_BETTER), row("c", Decision.KEPT, score=20.0)]
    losses: dict[str, tuple[Loss, ...]] = {STARTED: (crowded(100),), "b": (crowded(1),), "c": (crowded(2),)}
    assert hindsight(tried, losses) == {}
    losses["c"] = (crowded(99),)
    assert list(hindsight(tried, losses)) == [key_of(crowded(1))]


def test_the_kept_kernel_is_what_the_next_is_compared_with() -> None:
    tried = [BASELINE, row("c", Decision.KEPT, score=20.0), row("d", Decision.REVERTED, Status.NOT_BETTER)]
    losses: dict[str, tuple[Loss, ...]] = {STARTED: (crowded(100),), "c": (crowded(60),), "d": (crowded(50),)}
    assert hindsight(tried, losses) == {}


def test_rows_from_the_judged_one_on_do_not_count() -> None:
    later = row("z", Decision.REVERTED, Status.NOT_BETTER)
    losses = {STARTED: (crowded(100),), "z": (crowded(1),), NOW.id: (crowded(1),)}
    assert not refuted([BASELINE, NOW, later], kernel=KERNEL, like=NOW, losses=lambda name: losses[name])


def test_losses_in_a_file(tmp_path: Path) -> None:
    path, losses = tmp_path / "losses.json", (crowded(3), MatrixBound(cycles=0, ceiling_cycles=9))
    path.write_bytes(to_bytes(losses))
    assert from_file(tuple[Loss, ...], path) == losses


@pytest.mark.parametrize("data", [None, b"", b"[]x", b'[["CrowdedUnit", 1]]', b'{"a": 1}', b"[" * 100_000, b"\xff"])
def test_a_damaged_file_is_none(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "losses.json"
    if data is not None:
        path.write_bytes(data)
    assert from_file(tuple[Loss, ...], path) is None
