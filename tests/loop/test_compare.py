"""When two modelled latencies of one kernel count as the same."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.loop.compare import ModelledLatency, compare, of_row, of_score, trade
from ratchet.loop.decide import Ruling, decide
from ratchet.values import Band, Decision, Score
from ratchet.values.status import Status
from tests.loop.test_decide import row, verdict

TIMES = st.floats(0.001, 100)


def modelled(issued: float, wait: float, width: float = 0.06) -> ModelledLatency:
    latency = issued + wait
    return ModelledLatency(latency=latency, wait=wait, low=latency / (1 + width), high=latency * (1 + width))


@pytest.mark.parametrize(
    ("one", "other", "same", "why"),
    [
        (modelled(1.0, 0.2), modelled(1.1, 0.2), False, "nothing is traded"),
        (modelled(1.0, 0.2), modelled(1.0001, 0.2), False, "nothing is traded"),
        (modelled(1.0, 0.2), modelled(1.0, 0.2001), True, "a change of waiting under 1%"),
        (modelled(1.0, 0.2), modelled(1.002, 0.202), False, "nothing is traded"),
        (modelled(1.0, 0.2), modelled(1.001, 0.204), True, "a change of waiting under 1%"),
        (modelled(1.0, 0.2), modelled(1.0, 0.215), False, "nothing is traded"),
        (modelled(1.0, 0.2), modelled(1.05, 0.25), False, "nothing is traded"),
        (modelled(1.0, 0.2), modelled(1.05, 0.196), False, "nothing is traded"),
        (modelled(1.0, 0.2), modelled(1.03, 0.185), True, "trade"),
        (modelled(1.0, 0.2), modelled(0.97, 0.21), True, "-0.0100 ms of waiting"),
        (modelled(1.0, 0.2), modelled(0.96, 0.21), False, "far enough apart"),
        (modelled(1.0, 0.2), modelled(1.05, 0.18), False, "far enough apart"),
        (modelled(1.0, 0.2), modelled(1.4, 0.1), False, "do not overlap"),
    ],
)
def test_the_rule(one: ModelledLatency, other: ModelledLatency, same: bool, why: str) -> None:
    comparison = compare(one, other)
    assert comparison.same is same
    assert why in comparison.reason


def test_what_was_hardly_timed_differs_from_an_eighth_on() -> None:
    broad, near, far = (modelled(1.0, wait, width=0.35) for wait in (0.2, 0.3, 0.4))
    assert compare(broad, near).same
    assert "a difference under 12% of what was hardly timed" in compare(near, broad).reason
    assert not compare(broad, far).same
    assert not compare(modelled(1.0, 0.2), modelled(1.0, 0.3)).same, "as others do from one percent on"


def between(issued: float, wait: float, low: float, high: float) -> ModelledLatency:
    return ModelledLatency(latency=issued + wait, wait=wait, low=low, high=high)


@pytest.mark.parametrize(
    ("one", "other", "same", "why"),
    [
        (between(1.0, 0.25, 1.2, 1.25), between(1.0, 0.2500001, 1.25, 1.3), True, "a change of waiting"),
        (between(1.0, 0.25, 1.25, 1.3), between(1.0, 0.2500001, 1.2, 1.25), True, "a change of waiting"),
        (between(1.0, 0.25, 1.2, 1.25), between(1.0, 0.2500001, 1.26, 1.3), False, "do not overlap"),
        (between(1.0, 0.25, 1.26, 1.3), between(1.0, 0.2500001, 1.2, 1.25), False, "do not overlap"),
        (between(1.0, 0.25, 1.2, 1.3), between(1.0 + 2**-9, 0.25 + 2**-9, 1.2, 1.3), False, "nothing is traded"),
        (between(10.0, 0.0, 9, 11), between(9.0, 0.1, 9, 11), False, "far enough apart"),
        (between(10.0, 0.0, 9, 11), between(9.0, 0.0999, 9, 11), False, "nothing is traded"),
    ],
)
def test_on_the_line(one: ModelledLatency, other: ModelledLatency, same: bool, why: str) -> None:
    """Bands that touch overlap; as much of both is no change of waiting; a tenth is a trade."""
    for comparison in (compare(one, other), compare(other, one)):
        assert comparison.same is same
        assert why in comparison.reason


@given(TIMES, TIMES, TIMES, TIMES)
def test_symmetric_and_a_share(a: float, b: float, c: float, d: float) -> None:
    one, other = modelled(a, b), modelled(c, d)
    assert compare(one, other).same == compare(other, one).same
    assert 0 <= trade(one, other) <= 1
    assert trade(one, other) == pytest.approx(trade(other, one))


@given(TIMES, TIMES, st.floats(0, 1), st.floats(0, 0.999))
def test_less_of_both_is_the_same_only_where_waiting_is_most_of_it(
    issued: float, wait: float, less: float, fewer: float
) -> None:
    one, other = modelled(issued, wait), modelled(issued * less, wait * fewer)
    if compare(one, other).same:
        assert one.latency / other.latency < 1.01
        assert one.wait - other.wait > one.issued - other.issued


def score(value: float, latency: float, wait: float) -> Score:
    band = Band(bound_by="compute", low_ms=latency / 1.06, high_ms=latency * 1.06)
    return Score(
        score=value, latency_ms=latency, util_pct=50.0, tflops=98.5, regime="compute-bound", bw_util_pct=1.0,
        wait_ms=wait, band=band,
    )  # fmt: skip


INCUMBENT = replace(
    row(1000.0), median_ms="2.0", wait_ms="0.5", band_low_ms=repr(2.0 / 1.06), band_high_ms=repr(2.0 * 1.06)
)


def against_incumbent(value: float, latency: float, wait: float, *, accept_trade: bool = False) -> Ruling:
    return decide(replace(verdict(1000.0), score=score(value, latency, wait)), INCUMBENT, accept_trade=accept_trade)


def test_a_trade_within_the_band_is_reverted_and_says_so() -> None:
    traded = against_incumbent(1020.0, 1.98, 0.4)
    assert (traded.decision, traded.status) == (Decision.REVERTED, Status.NOT_BETTER)
    assert "+0.0800 ms of issued cycles against -0.1000 ms of waiting" in traded.reason
    assert "--accept-trade" in traded.reason
    plain = against_incumbent(1020.0, 1.98, 0.48)
    assert (plain.decision, plain.status) == (Decision.KEPT, Status.PASS)
    assert "nothing is traded" in plain.reason


def test_a_trade_is_kept_where_it_is_accepted_on_purpose() -> None:
    faster = against_incumbent(1020.0, 1.98, 0.4, accept_trade=True)
    assert (faster.decision, faster.status) == (Decision.KEPT, Status.PASS)
    assert "too near to be ranked, accepted on purpose" in faster.reason
    slower = against_incumbent(980.0, 2.02, 0.4, accept_trade=True)
    assert (slower.decision, slower.status) == (Decision.REVERTED, Status.NOT_BETTER), "slower is never kept"
    assert "--accept-trade" not in slower.reason


def test_a_score_and_its_row_are_the_same_numbers() -> None:
    judged = score(1000.0, 2.0, 0.5)
    kept = replace(
        row(1000.0),
        wait_ms=repr(judged.wait_ms),
        band_low_ms=repr(judged.band.low_ms) if judged.band else "",
        band_high_ms=repr(judged.band.high_ms) if judged.band else "",
    )
    assert of_row(kept) == of_score(judged)
    assert of_row(row(1000.0)).low == of_row(row(1000.0)).latency
