"""Modelled and Measured behind one interface: with a TPU attached a verdict has both latencies."""

import pytest

from prepare import judge
from ratchet.exam.judge.bench import opened
from ratchet.exam.judge.measured import Measured, Timing
from ratchet.exam.judge.steps import Silent
from ratchet.exam.measure import devices
from ratchet.values import Against, Launch, Samples
from ratchet.values.status import Refusal, Status
from ratchet.values.verdict import MODELLED_STEPS
from tests.exam.judge.programs import request_of
from tests.kernels import ATTENTION


def request(root, evaluator, **options):
    return request_of(root, ATTENTION, evaluator, **options)


@pytest.fixture
def a_tpu(monkeypatch):
    """Timings of a TPU that nobody has: 0.5 ms, whatever runs."""
    samples = Samples(evaluator="tpu", device="TPU v5e", launches=(Launch(candidate_ms=(0.5,) * 30),) * 3, seconds=1.0)
    monkeypatch.setattr(devices, "tpu", lambda: "v5e")
    monkeypatch.setattr(Measured, "latency", lambda self, problem, built: (Timing(samples=samples), "0.5 ms measured"))


@pytest.mark.usefixtures("without_jail", "a_tpu")
def test_with_a_tpu_both_latencies_are_there_and_the_measured_one_counts(tmp_path, workers):
    verdict = judge(request(tmp_path, "tpu"), workers=workers)
    assert verdict.status is Status.PASS, verdict.reason
    assert [step.name for step in verdict.steps] == [*MODELLED_STEPS, "measure", "roofline"]
    assert verdict.reason == "correct and timed on the tpu"
    assert verdict.timeline is not None
    assert verdict.timeline.latency_ms != 0.5
    assert verdict.score.latency_ms == verdict.samples.latency_ms == 0.5
    low, high = verdict.score.band.low_ms, verdict.score.band.high_ms
    assert low < verdict.timeline.latency_ms < high, "the band is the model's"
    modelled = judge(request(tmp_path, "v5e-model"), workers=workers)
    assert [step.name for step in modelled.steps] == [*MODELLED_STEPS]
    assert modelled.score.latency_ms == verdict.timeline.latency_ms
    assert modelled.samples is None
    assert modelled.reason == "correct and timed by the schedule machine"


@pytest.mark.usefixtures("without_jail", "a_tpu")
def test_what_fails_as_modelled_is_not_timed(tmp_path, workers, monkeypatch):
    def refuses(self, against):
        raise AssertionError("timed in vain")

    monkeypatch.setattr(Measured, "incumbent", refuses)
    monkeypatch.setattr("ratchet.tpu.compiler.compile.step", _refuse)
    against = Against(kernel=tmp_path / "kernel.py", test=1)
    verdict = judge(request(tmp_path, "tpu", against=against), workers=workers)
    assert verdict.status is Status.VMEM_OVERFLOW, verdict.reason
    assert [step.name for step in verdict.steps] == ["contract", "problem", "compile", "correctness"]


@pytest.mark.usefixtures("without_jail")
def test_the_values_of_what_is_too_slow_are_not_waited_for(tmp_path, workers):
    asked = []

    def bar(score):
        asked.append(score)
        return "too slow by far"

    slow = judge(request(tmp_path, "v5e-model", bar=bar), workers=workers)
    assert (slow.status, slow.reason) == (Status.UNCHECKED, "correctness: too slow by far")
    assert slow.parity is None
    assert asked == [slow.score]
    assert [step.name for step in slow.steps] == [name for name in MODELLED_STEPS if name != "control"]
    better = judge(request(tmp_path, "v5e-model", bar=lambda score: ""), workers=workers)
    assert better.status is Status.PASS, better.reason
    assert better.score == slow.score
    assert better.parity is not None


@pytest.mark.usefixtures("without_jail")
def test_nor_are_those_of_what_failed_already(tmp_path, workers, monkeypatch):
    monkeypatch.setattr("ratchet.tpu.compiler.compile.step", _refuse)
    verdict = judge(request(tmp_path, "v5e-model", bar=lambda score: ""), workers=workers)
    assert verdict.status is Status.VMEM_OVERFLOW, verdict.reason
    assert [step.name for step in verdict.steps] == ["contract", "problem", "compile"]


def _refuse(*_, **__):
    raise Refusal(Status.VMEM_OVERFLOW, "too much")


@pytest.mark.parametrize(
    ("evaluator", "platform", "timed"),
    [
        ("v5e-model", "tpu", "by the schedule machine"),
        ("tpu", "tpu", "on the tpu"),
        ("gpu", "cuda", "on the gpu"),
        ("cpu", "cpu", "on the cpu"),
    ],
)
def test_who_judges_follows_from_the_conditions(tmp_path, workers, evaluator, platform, timed):
    with opened(request(tmp_path, evaluator), workers, Silent().step) as bench:
        assert bench.evaluator.platform == platform
        assert bench.timed == timed
        assert (bench.model is not None) == (evaluator in ("v5e-model", "tpu"))
        assert (bench.device is not None) == (evaluator != "v5e-model")
