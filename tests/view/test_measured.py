"""What a person and a program read of a measured verdict."""

import dataclasses

import pytest

from ratchet.values import Band, Fidelity, Launch, Paired, Samples
from ratchet.values.status import Status
from ratchet.view.ledger import fidelity_table, log_table
from ratchet.view.terminal import report

from .timelines import document_of, row, verdict

LAUNCHES = tuple(
    Launch(candidate_ms=(ms, ms + 0.5, ms), incumbent_ms=(2.0, 2.0, 2.5), candidate_first=ms > 1.5, seconds=2.5)
    for ms in (1.5, 1.4, 1.6)
)
SAMPLES = Samples(evaluator="cpu", device="cpu", launches=LAUNCHES, seconds=7.5)
PAIRED = Paired(
    answer="cannot tell", speedup=1.3333, low=0.0, high=float("inf"), launches=3, samples=9, test=4, level=0.0025,
    log_evidence=1.5, seconds=7.5, more_launches=9, more_seconds=22.5,
)  # fmt: skip


def measured(*, timeline=None, paired=PAIRED, evaluator="cpu", chip="EPYC, 2 cores"):
    judged = verdict(timeline=timeline, samples=SAMPLES, paired=paired)
    return dataclasses.replace(
        judged, conditions=dataclasses.replace(judged.conditions, evaluator=evaluator, chip=chip)
    )


def text_of(judged):
    return report(judged, decision="reverted", reason="not distinguishable from row x", id="e1")


def test_the_report_says_what_was_timed_and_how():
    text = text_of(measured())
    assert "cpu (measured on the device) · EPYC, 2 cores" in text
    assert "TPU" not in text.split("judged by")[1].splitlines()[0]
    assert "9 calls in 3 launches by the wall clock" in text
    assert "1.400 to 1.600 ms" in text
    assert "1.3333 over the incumbent" in text
    assert "too few launches for an interval" in text
    assert "ms measured" in text
    assert "ms modelled" not in text
    assert "no device was timed" not in text


@pytest.mark.parametrize(("low", "high", "outside"), [(1.0, 2.0, False), (1.6, 2.0, True), (1.0, 1.4, True)])
def test_with_a_tpu_both_latencies_are_side_by_side_and_whether_they_disagree(low, high, outside):
    judged = measured(timeline=verdict().timeline, evaluator="tpu", chip="v5e")
    band = Band(bound_by="compute", low_ms=low, high_ms=high)
    judged = dataclasses.replace(judged, score=dataclasses.replace(judged.score, band=band))
    text = text_of(judged)
    assert ("OUTSIDE the model's band" in text) == outside
    assert "TPU v5e" in text
    assert f"measured over modelled {SAMPLES.latency_ms / judged.timeline.latency_ms:.3f}" in text


def test_device_times_are_used_where_every_launch_has_them():
    timed = [dataclasses.replace(one, candidate_device_ms=(1.0, 1.1, 1.2)) for one in LAUNCHES]
    assert dataclasses.replace(SAMPLES, launches=tuple(timed)).clock == "device"
    assert dataclasses.replace(SAMPLES, launches=tuple(timed)).latency_ms == 1.1
    assert dataclasses.replace(SAMPLES, launches=(*timed[:2], LAUNCHES[2])).clock == "wall"
    assert SAMPLES.latency_ms == 1.5


@pytest.mark.parametrize("paired", [None, PAIRED, dataclasses.replace(PAIRED, answer="faster", low=1.1, high=1.5)])
def test_the_document_holds_every_timing(paired):
    document = document_of(measured(paired=paired), outcome=Status.CANNOT_TELL, decision="reverted")
    assert document["outcome"]["exit_code"] == Status.CANNOT_TELL.exit_code
    assert document["verdict"]["samples"]["kind"] == "measured"
    assert document["verdict"]["samples"]["launches"][1]["candidate_ms"] == [1.4, 1.9, 1.4]
    assert (document["verdict"]["paired"] is None) == (paired is None)


def test_fidelity_is_the_ratio_of_rows_that_have_both():
    assert fidelity_table([]).startswith("No row has both")
    rows = [
        Fidelity(id="a", chip="v5e", measured_ms=2.2, modelled_ms=2.0, outside_band=False),
        Fidelity(id="b", chip="v5e", measured_ms=3.0, modelled_ms=2.0, outside_band=True),
    ]
    first, second, last = fidelity_table(rows).splitlines()
    assert "ratio 1.100" in first
    assert "outside" not in first
    assert second.endswith("ratio 1.500  outside the band")
    assert last == "2 rows, ratio 1.100 to 1.500, median 1.300"


def test_two_medians_are_never_set_beside_each_other():
    incumbent = row(id="a", commit="c" * 40, score="1.0", median_ms="9.0", evaluator="cpu")
    text = report(measured(), decision="kept", reason="", id="e1", incumbent=incumbent)
    assert "incumbent 1" not in text
    rows = [
        row(id="a", evaluator="cpu", score="10.0", decision="baseline"),
        row(id="b", evaluator="cpu", score="30.0", decision="kept", speedup="1.0312"),
        row(id="c", evaluator="cpu", score="90.0", decision="reverted", speedup=""),
    ]
    title, heading, first, second, third, _ = log_table(rows).splitlines()
    assert title.startswith("measured latency of ")
    assert "faster" in heading
    assert "x" not in first
    assert "1.031x  -3.03 %" in second
    assert "x" not in third
