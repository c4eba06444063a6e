"""The roofline and the score, against numbers worked out by hand."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.chips import V5E
from ratchet.judge.roofline import floor_ms, measured, score
from ratchet.values import Band, Launch, Samples
from ratchet.values.status import Refusal, Status
from tests.judge.programs import examined
from tests.kernels import ATTENTION

FLOPS = 2 * 2 * 16384 * 16385 // 2 * 128
"""Causal attention of 16384 by 128: the lower triangle."""
BYTES = 4 * 16384 * 128 * 2


def test_the_floor_of_the_published_problem():
    assert pytest.approx(FLOPS / 197e12 * 1e3) == floor_ms(FLOPS, BYTES, V5E)
    assert floor_ms(FLOPS, BYTES, V5E) == pytest.approx(0.34888, rel=1e-4)
    assert floor_ms(1, 819_000_000, V5E) == pytest.approx(1.0)


def test_the_published_score():
    """32.68 % in 2.16 ms is 1513."""
    found = score(int(0.3268 * 2.16e-3 * 197e12), 1, 2.16, V5E)
    assert found.util_pct == pytest.approx(32.68)
    assert found.score == pytest.approx(1513, abs=0.1)
    assert found.regime == "compute-bound"


def test_the_published_kernel_that_skipped_half_the_blocks():
    """0.71 ms was published as 99.43 %; the useful FLOPs make it 49 %."""
    assert score(FLOPS, BYTES, 0.71, V5E).util_pct == pytest.approx(49.1, abs=0.1)


def test_memory_bound():
    found = score(1000, 819_000_000, 2.0, V5E)
    assert found.regime == "memory-bound"
    assert found.util_pct == found.bw_util_pct == pytest.approx(50)
    assert found.score == pytest.approx(2500)
    assert found.tflops == pytest.approx(1000 / 2e-3 / 1e12)


@pytest.mark.parametrize("latency", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_latency(latency):
    with pytest.raises(Refusal) as caught:
        score(FLOPS, BYTES, latency, V5E)
    assert caught.value.status is Status.INVALID


@pytest.mark.parametrize(("flops", "moved"), [(FLOPS, BYTES), (1, 819_000_000)])
def test_faster_than_the_chip_is_invalid_and_not_fast(flops, moved):
    floor = floor_ms(flops, moved, V5E)
    assert score(flops, moved, floor * 1.0001, V5E).util_pct == pytest.approx(99.99, abs=0.01)
    with pytest.raises(Refusal, match="floor of this problem") as caught:
        score(flops, moved, floor * 0.99, V5E)
    assert caught.value.status is Status.INVALID


@given(st.floats(0.4, 1e6), st.floats(1.001, 10))
def test_slower_is_worse(latency, factor):
    assert score(FLOPS, BYTES, latency, V5E).score > score(FLOPS, BYTES, latency * factor, V5E).score


def test_four_chips_share_the_floor():
    assert floor_ms(FLOPS, BYTES, V5E, 4) == floor_ms(FLOPS, BYTES, V5E) / 4
    one, four = score(1000, 819_000_000, 2.0, V5E), score(1000, 819_000_000, 0.5, V5E, chips=4)
    assert one.util_pct == four.util_pct == pytest.approx(50)
    with pytest.raises(Refusal, match="what 4 v5e can do"):
        score(1000, 819_000_000, 0.24, V5E, chips=4)


def test_traffic_between_chips_earns_nothing():
    without, much = (score(1000, 819_000_000, 0.5, V5E, chips=4, ici_ms=ms) for ms in (0.0, 0.4))
    assert without.score == much.score
    assert (without.regime, much.regime) == ("memory-bound", "ici-bound")
    assert much.ici_util_pct == pytest.approx(80)


@pytest.mark.parametrize(("ms", "outside"), [(3.0, False), (4.5, True)])
def test_a_measured_latency_keeps_the_models_band_beside_it(ms, outside):
    launch = Launch(candidate_ms=(ms - 0.1, ms, ms + 0.1))
    samples = Samples(evaluator="tpu", device="TPU v5 lite", launches=(launch,) * 3, seconds=1.0)
    problem = examined(ATTENTION)[1]
    band = Band(bound_by="compute", low_ms=2.0, high_ms=4.0)
    modelled = dataclasses.replace(score(problem.flops, problem.compulsory_bytes, 3.1, V5E), band=band)
    found, said = measured(problem, samples, V5E, modelled)
    assert (found.latency_ms, found.band) == (ms, band)
    assert ("outside the model's band" in said) == outside
    assert measured(problem, samples, V5E, None)[0].band is None
