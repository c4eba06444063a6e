"""What of a verdict its row holds, which row counts, and what is said beside it."""

from __future__ import annotations

import dataclasses

import pytest

from ratchet.loop.decide import Ruling, bar, conditions_of, decide, differences, is_possible, scored
from ratchet.loop.rows import baseline_reason, comparisons, make_row, newest, no_change_reason
from ratchet.values import Band, Conditions, Decision, Footprint, Launch, Paired, Row, Samples, Score, Timeline, Verdict
from ratchet.values.status import Status
from tests.loop.stage import CONDITIONS
from tests.loop.test_decide import PLAN, row, verdict

SCORE = Score(
    score=1500.5, latency_ms=2.25, util_pct=50.5, tflops=98.5, regime="memory-bound", bw_util_pct=1.5, wait_ms=0.125,
    band=Band(bound_by="compute", low_ms=2.0, high_ms=2.5),
)  # fmt: skip
FOOTPRINT = Footprint(
    vmem_bytes=100, vmem_limit_bytes=1, vmem_buffers=(), hbm_bytes=1, hbm_limit_bytes=1, spill_stores=3, spill_loads=4
)
LAUNCH = Launch(candidate_ms=(2.0,) * 30, incumbent_ms=(2.1,) * 30)
SAMPLES = Samples(evaluator="cpu", device="cpu", launches=(LAUNCH,) * 4, seconds=9.0)
PAIRED = Paired(
    answer="cannot tell", speedup=1.03, low=0.99, high=1.07, launches=4, samples=120, test=2, level=0.005,
    log_evidence=1.0, seconds=40.0,
)  # fmt: skip
CONDITION_COLUMNS = {name: value for name, value in vars(CONDITIONS).items() if name != "series"}
MEASURED = dataclasses.replace(CONDITIONS, evaluator="cpu")


def timeline(cycles: int) -> Timeline:
    fields = dict.fromkeys(field.name for field in dataclasses.fields(Timeline)) | {"clock_hz": 1e9, "cycles": cycles}
    return Timeline(**fields)  # type: ignore[arg-type]


def made(judged: Verdict, message: str = "a message") -> Row:
    ruling = Ruling(decision=Decision.KEPT, status=Status.PASS, reason="why")
    return make_row(judged, ruling, plan=PLAN, name="the id", parent="p", message=message, evidence="digest")


def test_a_row_of_a_modelled_kernel() -> None:
    judged = dataclasses.replace(
        verdict(1.0), score=SCORE, footprint=FOOTPRINT, timeline=timeline(1_750_000), seconds=1.26
    )
    own = vars(made(judged))
    time = own.pop("time")
    assert own == {
        "commit": "c" * 40, "score": "1500.5", "status": "PASS", "median_ms": "2.25", "util_pct": "50.5",
        "tflops": "98.5", "regime": "memory-bound", "bw_util_pct": "1.5", "note": "a message", "id": "the id",
        "kernel": "kernel.py", "kernel_blob": "b", **CONDITION_COLUMNS, "parent": "p", "decision": "kept",
        "reason": "why", "vmem_bytes": "100", "spills": "7", "wait_ms": "0.125", "band_low_ms": "2.0",
        "band_high_ms": "2.5", "modelled_ms": "", "speedup": "", "speedup_low": "", "speedup_high": "", "launches": "",
        "samples": "", "seconds": "1.3", "evidence": "digest", "previous": "",
    }  # fmt: skip
    assert (len(time), time[-1]) == (len("2026-11-21T03:15:00Z"), "Z")


def test_a_row_of_a_measured_kernel() -> None:
    judged = dataclasses.replace(
        verdict(1.0), score=SCORE, samples=SAMPLES, paired=PAIRED, timeline=timeline(1_750_000)
    )
    own = made(judged)
    assert (own.wait_ms, own.modelled_ms) == ("", "1.75")
    assert (own.speedup, own.speedup_low, own.speedup_high) == ("1.03", "0.99", "1.07")
    assert (own.launches, own.samples) == ("4", "120")


def test_a_row_without_numbers() -> None:
    own = made(dataclasses.replace(verdict(1.0), score=dataclasses.replace(SCORE, band=None)))
    assert (own.score, own.band_low_ms, own.band_high_ms) == ("1500.5", "", "")
    own = made(verdict(None, Status.CONTRACT))
    empty = ("score", "median_ms", "util_pct", "tflops", "regime", "bw_util_pct", "vmem_bytes", "spills", "wait_ms")
    assert {getattr(own, name) for name in empty} == {""}
    assert made(verdict(1.0), "x" * 400).note == "x" * 299 + "…"


def test_the_newest_score_of_a_kernel_counts() -> None:
    first, other = row(1.0), dataclasses.replace(row(2.0), kernel_blob="other")
    failed, elsewhere = row(None, Status.CONTRACT), row(3.0, conditions=MEASURED)
    known = (first, dataclasses.replace(first, id="second"), failed, elsewhere, other)
    assert newest(known, kernel="kernel.py", blob="b", conditions=CONDITIONS) == known[1]
    assert newest(known, kernel="kernel.py", blob="b") == elsewhere
    assert newest(known, kernel="kernel.py", blob="other") == other
    assert newest(known, kernel="another.py", blob="b") is None
    assert newest((failed,), kernel="kernel.py", blob="b") is None


def test_comparisons_are_rows_with_a_speedup_and_experiments_without_a_row() -> None:
    known = (row(1.0), dataclasses.replace(row(2.0), id="two", speedup="1.5"))
    assert comparisons(known, ()) == 1
    assert comparisons(known, ("two", "20261121-031500-1a2b", "three", "four")) == 3


def test_what_is_said_of_a_kernel_that_head_has() -> None:
    assert baseline_reason(verdict(None, Status.CONTRACT), row(1.0)) == "CONTRACT: because"
    text = "HEAD's kernel scores 1000, modelled"
    name = row(1.0).id
    assert baseline_reason(verdict(1000.0), None) == text
    assert baseline_reason(verdict(1000.0), row(1000.0)) == f"{text}: the same to the last digit as row {name}"
    assert baseline_reason(verdict(1000.0), row(1000.5)) == (
        f"{text}; row {name} has 1000.5 under the same conditions: NOT reproduced"
    )
    assert baseline_reason(verdict(1000.0), row(1000.0, conditions=MEASURED)) == (
        f"{text}; row {name} has 1000.0 under other conditions: evaluator (cpu, v5e-model)"
    )
    assert baseline_reason(verdict(1000.0, conditions=MEASURED), row(1000.0, conditions=MEASURED)) == (
        f"HEAD's kernel scores 1000, measured; row {name} has 1000.0, which is noise: only paired launches are compared"
    )


def test_why_there_is_nothing_to_judge() -> None:
    long = dataclasses.replace(row(1.5), kernel_blob="b" * 40, seal="s" * 16, problem="q" * 64)
    said = no_change_reason(long)
    assert f"(blob {'b' * 10})" in said
    assert f"seal ({'s' * 10})" in said
    assert f"problem ({'q' * 10})" in said
    assert said.endswith("; edit kernel.py first")


def test_conditions_that_differ_are_named_with_both_values() -> None:
    other = dataclasses.replace(CONDITIONS, series="older", chip="v6e")
    assert differences(CONDITIONS, other) == ("chip (v5e, v6e)", "series (5ea1, older)")
    assert differences(other, CONDITIONS) == ("chip (v6e, v5e)", "series (older, 5ea1)")
    assert differences(CONDITIONS, conditions_of(row(1.0))) == ()
    assert isinstance(conditions_of(row(1.0)), Conditions)


@pytest.mark.parametrize("score", [0.0, -1.0, float("nan"), float("inf")])
def test_a_score_that_no_kernel_has_is_no_bar(score: float) -> None:
    assert not is_possible(score)
    assert scored(dataclasses.replace(row(1.0), score=repr(score))) is None
    assert scored(dataclasses.replace(row(1.0), score="")) is None
    assert is_possible(5e-324)
    assert scored(None) is None
    too_slow = bar(row(1000.0))
    assert too_slow is not None
    assert too_slow(dataclasses.replace(SCORE, score=score)) == ""


@pytest.mark.parametrize("status", list(Status))
def test_the_rows_that_may_be_the_bar(status: Status) -> None:
    counts = status in (Status.PASS, Status.NOT_BETTER, Status.CANNOT_TELL)
    assert scored(dataclasses.replace(row(3.0), status=status.name)) == (3.0 if counts else None)


AT = f"row {row(1.0).id} at {'c' * 10}"


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (1100.0, f"faster: time 2 -> 2 ms, modelled; score 1100 is 10 % above 1000 of {AT}; "),
        (900.0, f"slower: time 2 -> 2 ms, modelled; score 900 is 10 % below 1000 of {AT}"),
        (1000.0, f"the same to the last digit: time 2 -> 2 ms, modelled; score 1000, as {AT.partition(' at')[0]}"),
    ],
)
def test_a_modelled_decision_in_words(score: float, reason: str) -> None:
    incumbent = dataclasses.replace(row(1000.0), wait_ms="0.0")
    assert decide(verdict(score), incumbent).reason.startswith(reason)


def test_the_first_decision_in_words() -> None:
    assert decide(verdict(1000.0), None).reason == "the first kernel that passes, score 1000, modelled"
    assert decide(verdict(1000.0, conditions=MEASURED), None).reason.endswith(", measured")
    assert decide(verdict(None, Status.CONTRACT), None).reason == "CONTRACT: because"
    assert decide(verdict(None, Status.INTERNAL), None).reason.startswith("INTERNAL: because; the kernel is not to")


@pytest.mark.parametrize(
    ("changed", "end"),
    [
        ({"more_launches": 5, "more_seconds": 50.5}, "; about 5 launches more would decide it if they are like these: "
         "--budget 91"),
        ({"more_launches": 5}, "; launches like these would never decide it"),
        ({"more_seconds": 5.0}, "; launches like these would never decide it"),
        ({"answer": "faster"}, "probability of 0.005"),
        ({"answer": "not faster", "more_launches": 5, "more_seconds": 5.0}, "probability of 0.005"),
    ],
)  # fmt: skip
def test_a_measured_decision_in_words(changed: dict[str, object], end: str) -> None:
    answer = dataclasses.replace(PAIRED, **changed)  # type: ignore[arg-type]
    judged = dataclasses.replace(verdict(1.0, conditions=MEASURED), paired=answer)
    reason = decide(judged, row(1000.0, conditions=MEASURED)).reason
    assert (
        f": +3.00 % (95 %: -1.00 to +7.00), measured side by side with {AT}; 4 launches, 120 calls of each; " in reason
    )
    assert reason.endswith(end)


@pytest.mark.parametrize("interval", [{"low": 0.0}, {"high": float("inf")}])
def test_an_interval_that_is_not_known_is_not_said(interval: dict[str, float]) -> None:
    judged = dataclasses.replace(
        verdict(1.0, conditions=MEASURED),
        paired=dataclasses.replace(PAIRED, **interval),  # type: ignore[arg-type]
    )
    assert ": +3.00 %, measured side by side with" in decide(judged, row(1000.0, conditions=MEASURED)).reason
