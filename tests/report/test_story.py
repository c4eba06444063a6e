"""Which experiment gained what, over which."""

from __future__ import annotations

import pytest

from ratchet.report import words
from ratchet.report.story import Outcome, diff_lines, story
from ratchet.values import Decision
from ratchet.values.status import Status
from tests.report.samples import baseline, many, material, measured, reverted, row


def test_gains_are_over_the_kernel_in_place() -> None:
    overview = story(material([baseline(1, 4.0), row(2, 2.0), reverted(3, 3.0), row(4, None), row(5, 1.0)]))
    assert [one.outcome for one in overview.experiments] == ["baseline", "kept", "reverted", "failed", "kept"]
    assert [one.times for one in overview.experiments] == [None, 2.0, pytest.approx(2 / 3), None, 2.0]
    assert overview.main.factor == 4.0
    assert [one.number for one in overview.main.gains] == [2, 5]
    assert overview.current is overview.experiments[4]
    assert not overview.unjudged
    assert story(material([baseline()], head_blob="b" * 40)).unjudged, "HEAD has another kernel"
    assert overview.count("kept") == 2


def test_a_changed_judge_starts_a_series_and_is_no_gain() -> None:
    rows = [baseline(1, 4.0), row(2, 2.0), baseline(3, 1.9, seal="other"), row(4, 1.0, seal="other")]
    overview = story(material(rows))
    assert [one.times for one in overview.experiments] == [None, 2.0, None, 1.9]
    assert overview.main.factor == pytest.approx(3.8)
    long = story(material(many(60)))
    assert long.current.latency_ms == pytest.approx(4.0 / long.main.factor)
    assert len(overview.main.series) == 2


def test_what_was_measured_is_a_track_of_its_own_and_counts_by_paired_launches() -> None:
    overview = story(
        material([baseline(1, 4.0), measured(2, 9.0, decision=Decision.BASELINE), measured(3, 5.0, "1.5")])
    )
    assert [track.evaluator for track in overview.tracks] == ["cpu", "v5e-model"]
    assert overview.main.factor == 1.5
    assert overview.experiments[2].measured


@pytest.mark.parametrize("latency", ["", "nan", "0", "-1", "inf", "1e999", "text"])
def test_a_row_without_a_sensible_latency_is_a_failure(latency: str) -> None:
    overview = story(material([baseline(1), row(2, 1.0, median_ms=latency)]))
    assert overview.experiments[1].latency_ms is None
    assert overview.experiments[1].times is None


def test_failures_alone_have_no_current_kernel_and_nothing_has_no_track() -> None:
    nothing = story(material([]))
    assert (nothing.main, nothing.experiments) == (None, ())
    overview = story(material([row(1, None), row(2, None)]))
    assert overview.main.current is None
    assert overview.main.factor == 1.0
    assert words.gained(overview.main) == "no experiment has a latency yet"


def test_diffs_are_from_the_kernel_before() -> None:
    sources = {f"{1:040x}": "a\nb\n", f"{2:040x}": "a\nc\n"}
    overview = story(material([baseline(1), row(2, 1.0)], sources=sources))
    shown = diff_lines(overview.experiments[1], sources, most=2)
    assert shown[1] == 4
    assert list(shown[0]) == ["@@ -1,2 +1,2 @@", " a"]
    assert diff_lines(overview.experiments[1], {}, most=2) is None
    assert diff_lines(overview.experiments[0], sources, most=2) is None


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (2.0, "2.00× faster, 50.0 % less time"),
        (0.5, "2.00× slower, 100.0 % more time"),
        (1.005, "1.005× faster, 0.50 % less time"),
        (1.0004, "1.00040× faster, 0.04 % less time"),
        (20.13, "20.1× faster, 95.0 % less time"),
        (1.0, "the same time"),
        (None, ""),
    ],
)
def test_changes_are_times_and_per_cent_of_time(times: float | None, said: str) -> None:
    assert words.times_in_words(times) == said


def test_why_says_what_became_of_an_experiment() -> None:
    near = reverted(3, 1.99)
    unchecked = reverted(5, 3.0, status=Status.UNCHECKED.name)
    overview = story(material([baseline(1), reverted(2, 2.2), near, row(4, None), unchecked, row(6, 1.0)]))
    said = [words.why(one) for one in overview.experiments]
    assert said[1] == "1.10× slower, 10.0 % more time: correct, but no better, so it was reverted"
    assert "too near to be ranked" in said[2]
    assert said[3].startswith("WRONG_VALUES: an output differs")
    assert "without checking its values" in said[4]
    assert said[5] == "2.00× faster, 50.0 % less time"
    (unknown,) = story(material([row(1, None, status="NEW_KIND")])).experiments
    assert unknown.outcome is Outcome.FAILED
    assert "does not know" in words.why(unknown), "a status of another version is no error"
