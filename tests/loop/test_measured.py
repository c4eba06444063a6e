"""Decisions on measured kernels: only launches side by side count, and every look at the noise is counted."""

import dataclasses
import math

import pytest

from ratchet.exam.measure import stats
from ratchet.loop.decide import decide
from ratchet.loop.refs import EXPERIMENTS
from ratchet.values import Against, Conditions, Decision, Launch, Paired, Samples, Verdict
from ratchet.values.status import Refusal, Status
from tests.loop.stage import CONDITIONS, Stage, StageJudge, kernel_text, verdict_of
from tests.loop.test_decide import row, verdict

MEASURED = dataclasses.replace(CONDITIONS, evaluator="cpu", chip="a CPU, 2 cores")
LAUNCH = Launch(candidate_ms=(2.0,) * 30, incumbent_ms=(2.1,) * 30)
SAMPLES = Samples(evaluator="cpu", device="cpu", launches=(LAUNCH,) * 20, seconds=9.0)


def paired(differences, test=1) -> Paired:
    return stats.conclude(differences, test=test, samples=600, seconds=40.0)


def measured(answer: Paired | None, score: float = 1000.0, conditions: Conditions = MEASURED) -> Verdict:
    return dataclasses.replace(verdict(score, conditions=conditions), paired=answer, samples=SAMPLES)


def test_faster_is_kept_whatever_the_medians_say() -> None:
    ruling = decide(measured(paired([0.03] * 20), score=900.0), row(1000.0, conditions=MEASURED))
    assert (ruling.decision, ruling.status) == (Decision.KEPT, Status.PASS)
    assert "+3.05 %" in ruling.reason
    assert "20 launches" in ruling.reason


def test_not_faster_is_reverted_whatever_the_medians_say() -> None:
    ruling = decide(measured(paired([-0.03] * 20), score=2000.0), row(1000.0, conditions=MEASURED))
    assert (ruling.decision, ruling.status) == (Decision.REVERTED, Status.NOT_BETTER)


def test_cannot_tell_reverts_and_says_how_long_it_would_take() -> None:
    answer = paired([0.02, 0.0, 0.015, 0.01, -0.003, 0.012])
    ruling = decide(measured(answer), row(1000.0, conditions=MEASURED))
    assert (ruling.decision, ruling.status) == (Decision.REVERTED, Status.CANNOT_TELL)
    assert f"{answer.more_launches} launches more would decide it" in ruling.reason
    assert f"--budget {math.ceil(40 + answer.more_seconds)}" in ruling.reason
    nowhere = decide(measured(paired([0.3, -0.3] * 3)), row(1000.0, conditions=MEASURED))
    assert nowhere.status is Status.CANNOT_TELL
    assert "would never decide it" in nowhere.reason


class Bench(StageJudge):
    """A judge that measures: ``GAIN`` in the kernel file is what the launches say."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.asked: list[tuple[str, int] | None] = []

    def judge(self, kernel_path, *, kernel_rel, evidence_id, against: Against | None = None, bar=None) -> Verdict:
        text = kernel_path.read_text()
        self.asked.append((against.kernel.read_text(), against.test) if against else None)
        if "INTERRUPT" in text:
            raise KeyboardInterrupt
        gain = float(text.partition("GAIN = ")[2].split()[0]) if "GAIN" in text else 0.0
        answer = paired([gain] * 24, against.test) if against else None
        judged = verdict_of(text, kernel_rel, MEASURED)
        return dataclasses.replace(judged, samples=SAMPLES, paired=answer)


def test_a_history_of_measured_experiments(stage: Stage) -> None:
    stage.conditions = MEASURED
    bench = Bench(stage)
    first = stage.read()
    stage.write(kernel_text(1000.0, "GAIN = 0.05\n"))
    outcome = stage.run("a gain", judge=bench)
    assert (outcome.status, outcome.decision) == (Status.PASS, Decision.KEPT)
    assert bench.asked == [None, (first, 1)], "HEAD's kernel is timed alone, then beside the candidate"
    assert outcome.baseline is not None
    kept = stage.rows()[-1]
    assert (kept.launches, kept.samples) == ("20", "600")
    assert float(kept.speedup) == pytest.approx(math.exp(0.05))
    assert float(kept.speedup_low) < float(kept.speedup) < float(kept.speedup_high)
    assert stage.rows()[0].speedup == ""

    second = stage.read()
    for number, gain in enumerate((-0.05, 0.0), start=2):
        stage.write(kernel_text(2000.0, f"GAIN = {gain}\n"))
        outcome = stage.run("a loss, or nothing", judge=bench)
        assert outcome.decision == Decision.REVERTED
        assert bench.asked[-1] == (second, number)
        assert stage.read() == second

    stage.write(kernel_text(1.0, "INTERRUPT = 1\n"))
    with pytest.raises(Refusal, match="interrupted"):
        stage.run("it goes badly", judge=bench)
    assert len(stage.git("for-each-ref", EXPERIMENTS).splitlines()) == 5
    stage.write(kernel_text(1.0, "GAIN = 0.05\n"))
    outcome = stage.run("and again", judge=bench)
    assert bench.asked[-1] == (second, 5), "what was interrupted counts as a look"
    assert outcome.decision == Decision.KEPT
