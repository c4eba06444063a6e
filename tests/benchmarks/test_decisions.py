"""The rule over really recorded timings, as ``python -m benchmarks.decisions`` plays it, with fewer histories."""

import pytest

from benchmarks.decisions import BUDGET_SECONDS, RECORDING, Recording, equal_kernels, gains
from ratchet.exam.measure import stats


@pytest.fixture(scope="module")
def recording():
    return Recording(RECORDING)


def test_the_recording_says_how_it_was_made(recording):
    assert "benchmarks.decisions --record" in recording.made["how"]
    assert len(recording.launches) >= 100
    assert min(one.shape[1] for one in recording.launches) >= 30


@pytest.mark.slow
def test_equal_kernels_are_kept_by_the_published_rule_and_not_by_ours(recording):
    for row in equal_kernels(recording, 10, BUDGET_SECONDS):
        if row["rule"] == "ours":
            assert row["histories with any %"] <= 20, "5 % are promised, of ten histories"
        else:
            assert row["per experiment %"] > 30


def test_a_gain_of_three_per_cent_is_found(recording):
    found = {round(row["true gain %"], 3): row for row in gains(recording, 40, BUDGET_SECONDS)}
    assert found[3.0]["kept %"] >= 90
    assert found[-3.0]["kept %"] == 0
    assert found[-3.0]["launches, median"] < 15
    assert stats.BUDGET == 0.05
