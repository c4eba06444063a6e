"""The decision, over all the verdicts there can be."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.loop.decide import Ruling, bar, decide, scored
from ratchet.loop.journal import Plan
from ratchet.loop.rows import make_row
from ratchet.values import Conditions, Decision, Row, Score, Verdict
from ratchet.values.status import Status
from tests.loop.stage import CONDITIONS

PLAN = Plan(
    branch="refs/heads/main",
    old="o",
    new="c" * 40,
    kernel="kernel.py",
    judged="b",
    lock="l",
    lock_now=None,
    lock_back=None,
)
NUMBERS = st.floats() | st.floats(1, 1e4) | st.sampled_from([0.0, -1.0, 1000.0, math.nextafter(1000.0, 2000.0)])
FAILURES = [status for status in Status if status not in (Status.PASS, Status.USAGE) and status.exit_code < 50]
TROUBLES = [status for status in Status if status.exit_code >= 50 or status is Status.USAGE]


def verdict(score: float | None, status: Status = Status.PASS, conditions: Conditions = CONDITIONS) -> Verdict:
    numbers = None
    if score is not None:
        numbers = Score(
            score=score, latency_ms=2.0, util_pct=50.0, tflops=98.5, regime="compute-bound", bw_util_pct=1.0
        )
    return Verdict(
        status=status, reason="because", kernel="kernel.py", kernel_name="k", conditions=conditions, score=numbers,
        steps=(), source_sha256="", seconds=1.0,
    )  # fmt: skip


def row(score: float | None, status: Status = Status.PASS, conditions: Conditions = CONDITIONS) -> Row:
    judged = verdict(score, Status.PASS if score is not None else status, conditions)
    return make_row(
        judged, Ruling(decision=Decision.BASELINE, status=status, reason=""), name="20261121-031500-1a2b",
        plan=PLAN, parent="p", message="m", evidence="",
    )  # fmt: skip


@given(NUMBERS, NUMBERS)
def test_kept_only_if_strictly_better_or_first(score: float, bar: float) -> None:
    ruling = decide(verdict(score), row(bar))
    possible, bar_counts = math.isfinite(score) and score > 0, math.isfinite(bar) and bar > 0
    assert (ruling.decision == Decision.KEPT) == (possible and (not bar_counts or score > bar))
    assert (ruling.status is Status.PASS) == (ruling.decision == Decision.KEPT)
    assert ruling.reason
    assert "\n" not in ruling.reason


@pytest.mark.parametrize("status", FAILURES)
def test_what_does_not_pass_is_reverted(status: Status) -> None:
    if status in (Status.NOT_BETTER, Status.NO_CHANGE, Status.UNCHECKED):
        return
    for incumbent in (None, row(1000.0)):
        ruling = decide(verdict(None, status), incumbent)
        assert (ruling.decision, ruling.status) == (Decision.REVERTED, status)
        assert status.name in ruling.reason


@pytest.mark.parametrize("status", TROUBLES)
def test_trouble_of_the_judges_own_reverts_nothing(status: Status) -> None:
    ruling = decide(verdict(None, status), row(1000.0))
    assert (ruling.decision, ruling.status) == (Decision.JUDGED, status)


@pytest.mark.parametrize("incumbent", [None, row(None, Status.WRONG_VALUES), row(math.nan)])
def test_the_first_pass_is_kept(incumbent: Row | None) -> None:
    assert decide(verdict(1.0), incumbent).decision == Decision.KEPT


@pytest.mark.parametrize("name", ["evaluator", "chip", "compiler", "seal", "problem"])
def test_other_conditions_are_not_compared(name: str) -> None:
    other = Conditions(**{**vars(CONDITIONS), name: "another", "series": "another" if name == "seal" else ""})
    with pytest.raises(ValueError, match="series" if name == "seal" else name):
        decide(verdict(2000.0), row(1000.0, conditions=other))
    assert decide(verdict(None, Status.CONTRACT), row(1000.0, conditions=other)).decision == Decision.REVERTED


@given(st.floats(0.001, 1e6), st.floats(0.001, 1e6))
def test_the_bar_turns_down_what_would_be_reverted_and_no_more(score: float, of_incumbent: float) -> None:
    ruling = decide(verdict(score), row(of_incumbent))
    why = bar(row(of_incumbent))(verdict(score).score)
    assert bool(why) == (ruling.decision == Decision.REVERTED)
    assert why in ("", ruling.reason)


@pytest.mark.parametrize(
    "incumbent",
    [None, row(None, Status.WRONG_VALUES), row(1.0, conditions=dataclasses.replace(CONDITIONS, evaluator="cpu"))],
)
def test_there_is_no_bar_where_every_pass_is_kept_or_a_device_decides(incumbent: Row | None) -> None:
    assert bar(incumbent) is None


def test_a_kernel_whose_values_were_not_checked_is_reverted_and_no_bar_for_others() -> None:
    ruling = decide(verdict(900.0, Status.UNCHECKED), row(1000.0))
    assert (ruling.decision, ruling.status) == (Decision.REVERTED, Status.UNCHECKED)
    assert ruling.reason == bar(row(1000.0))(verdict(900.0).score)
    assert decide(verdict(1100.0, Status.UNCHECKED), row(1000.0)).reason == "because", "it is not too slow"
    assert decide(verdict(900.0, Status.UNCHECKED), None).reason == "because", "there is no bar"
    assert scored(row(900.0, Status.UNCHECKED)) is None


@pytest.mark.parametrize("evaluator", ["tpu", "gpu", "cpu"])
def test_one_measured_median_decides_nothing(evaluator: str) -> None:
    measured = Conditions(**{**vars(CONDITIONS), "evaluator": evaluator})
    with pytest.raises(ValueError, match="measured"):
        decide(verdict(2000.0, conditions=measured), row(1000.0, conditions=measured))


def test_by_how_much_is_said_even_if_it_is_little() -> None:
    ruling = decide(verdict(1000.0000001), row(1000.0))
    assert ruling.decision == Decision.KEPT
    assert "1e-08 % above" in ruling.reason
