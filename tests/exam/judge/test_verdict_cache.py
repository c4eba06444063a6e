"""The same program under the same conditions has the verdict that it had before, and no other program has it."""

from dataclasses import replace
from pathlib import Path

import pytest

from prepare import judge
from ratchet.exam.judge import verdict_cache
from ratchet.process import key
from ratchet.values import ArraySpec, Artefact, Conditions, Earlier, Score, Verdict
from ratchet.values.place import SourceLine
from ratchet.values.status import Status
from ratchet.values.tokens import TokenTable
from tests.exam.judge.programs import freeze, request_of
from tests.kernels import LAYERNORM

CONDITIONS = Conditions(evaluator="v5e-model", chip="v5e", compiler="libtpu", seal="a seal", problem="")
ARTEFACT = Artefact(
    kernel_name="k", problem_description="p", flops=1, tiling_meta={"block": [1, 2]}, program=b"bytes",
    inputs=(ArraySpec(shape=(8, 128), dtype="float32"),), outputs=(ArraySpec(shape=(8, 128), dtype="float32"),),
    reference_sha256="r", inputs_sha256="i", jail="", seconds=1.0,
)  # fmt: skip
TOKENS = TokenTable(sources=(("kernel.py", 3, 1), None), around=(-1, 0), names={"k_0": "body"})


def verdict(status=Status.PASS, **others):
    score = Score(score=1.0, latency_ms=1.0, util_pct=1.0, tflops=1.0, regime="compute-bound", bw_util_pct=1.0)
    return Verdict(
        status=status, reason="why", kernel="kernel.py", kernel_name="k", conditions=CONDITIONS, steps=(),
        score=score if status in (Status.PASS, Status.UNCHECKED) else None, source_sha256="s", seconds=9.0, **others,
    )  # fmt: skip


def program(code="code", artefact=ARTEFACT, tokens=TOKENS, **conditions):
    return verdict_cache.identity(code, tokens, artefact, {"secret": "a", **conditions})


@pytest.fixture(autouse=True)
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key, "path", lambda: tmp_path / "home" / "key")


@pytest.mark.parametrize("status", [Status.PASS, Status.UNCHECKED, Status.VMEM_OVERFLOW, Status.WRONG_VALUES])
def test_what_the_program_would_have_again_is_remembered(tmp_path, status):
    verdict_cache.keep(tmp_path, program(), verdict(status), "x-1")
    known = verdict_cache.recall(tmp_path, program())
    assert known is not None
    assert known.remembered is not None
    assert known.remembered.experiment == "x-1"
    assert replace(known, remembered=None) == verdict(status)


@pytest.mark.parametrize(
    "status",
    [Status.INTERNAL, Status.INFRASTRUCTURE, Status.COMPILE_TIMEOUT, Status.COMPILER_CRASHED, Status.CANNOT_VERIFY,
     Status.SCHEDULE_UNKNOWN, Status.TIMEOUT, Status.NO_SPACE, Status.INTERRUPTED],
)  # fmt: skip
def test_what_may_be_the_machines_doing_is_not(tmp_path, status):
    verdict_cache.keep(tmp_path, program(), verdict(status), "x-1")
    assert verdict_cache.recall(tmp_path, program()) is None


def test_what_was_remembered_does_not_become_news(tmp_path):
    verdict_cache.keep(tmp_path, program(), verdict(remembered=Earlier(time="then", experiment="x-1")), "x-2")
    assert verdict_cache.recall(tmp_path, program()) is None


@pytest.mark.parametrize(
    "other",
    [
        program(code="other code"),
        program(seal="another"),
        program(secret="another"),
        program(artefact=replace(ARTEFACT, tiling_meta={"block": [1, 3]})),
        program(artefact=replace(ARTEFACT, output_splits=((("chip",),),))),
    ],
)
def test_any_other_program_or_condition_is_judged(tmp_path, other):
    verdict_cache.keep(tmp_path, program(), verdict(), "x-1")
    assert verdict_cache.recall(tmp_path, other) is None


def test_how_long_tracing_took_is_no_condition():
    assert program(artefact=replace(ARTEFACT, seconds=2.0)).digest == program().digest


def test_what_was_edited_or_signed_by_another_key_is_none(tmp_path, monkeypatch):
    verdict_cache.keep(tmp_path, program(), verdict(), "x-1")
    (file,) = tmp_path.glob("*.verdict")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert verdict_cache.recall(tmp_path, program()) is None
    file.write_bytes(whole)
    assert verdict_cache.recall(tmp_path, program()) is not None
    file.rename(file.with_name(f"{program(code='other').digest}.verdict"))
    assert verdict_cache.recall(tmp_path, program(code="other")) is None, "signed for another program"
    monkeypatch.setattr(key, "path", lambda: tmp_path / "elsewhere" / "key")
    file.write_bytes(whole)
    assert verdict_cache.recall(tmp_path, program()) is None


def test_a_refusal_that_names_places_is_that_of_the_same_places_only(tmp_path):
    verdict_cache.keep(tmp_path, program(), verdict(Status.WRONG_VALUES), "x-1")
    moved = TokenTable(sources=(("kernel.py", 4, 1), None), around=(-1, 0), names={"k_0": "body"})
    assert verdict_cache.recall(tmp_path, program(tokens=moved)) is None


def test_the_oldest_go(tmp_path, monkeypatch):
    monkeypatch.setattr(verdict_cache, "MAX_BYTES", 1)
    verdict_cache.keep(tmp_path, program(), verdict(), "x-1")
    verdict_cache.keep(tmp_path, program(code="newer"), verdict(), "x-2")
    assert verdict_cache.recall(tmp_path, program()) is None
    assert verdict_cache.recall(tmp_path, program(code="newer")) is not None


def lines(found):
    return [cost.place.line for cost in found.timeline.blame.lines if isinstance(cost.place, SourceLine)]


def test_a_verdict_is_remembered_with_todays_lines_until_it_is_asked_for_afresh(tmp_path, workers):
    freeze(tmp_path, LAYERNORM)

    def judged(source, **options):
        asked = replace(request_of(tmp_path, source, **options), conditions=CONDITIONS, remember=True)
        return judge(asked, workers=workers)

    first = judged(LAYERNORM)
    assert (first.status, first.remembered) == (Status.PASS, None), first.reason
    again = judged(LAYERNORM)
    assert again.remembered is not None
    assert (again.score, again.timeline, again.parity) == (first.score, first.timeline, first.parity)
    assert "remembered" in [step.name for step in again.steps]
    moved = judged("# a comment\n" + LAYERNORM)
    assert moved.remembered is not None
    assert moved.score == first.score
    assert lines(first)
    assert lines(moved) == [line + 1 for line in lines(first)]
    modelled = judged(LAYERNORM, model_only=True)
    assert (modelled.status, modelled.remembered) == (Status.UNCHECKED, None), "it asks for less"
