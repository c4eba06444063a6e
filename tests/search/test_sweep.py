"""A sweep: versions of one file modelled side by side, each as the judge models it alone, and nothing written."""

import dataclasses
import json

import pytest

from prepare import judge
from ratchet.commands import options
from ratchet.commands import sweep as commands
from ratchet.exam.judge.request import Request
from ratchet.exam.problem.problem import encode, lock_path
from ratchet.search.sweep import Sweep
from ratchet.tpu.chips import V5E
from ratchet.values import Band, Conditions, SweepResult
from ratchet.values.status import Refusal, Status
from ratchet.view.verdicts import ranked
from tests.exam.judge.programs import examined
from tests.kernels import ATTENTION, edited
from tests.view.timelines import verdict

CONDITIONS = Conditions(evaluator="v5e-model", chip="v5e", compiler="", seal="", problem="")


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(ATTENTION)
    lock_path(path).write_bytes(encode(examined(ATTENTION)[1]))
    return path


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.slow
def test_a_point_is_modelled_as_the_judge_models_it_alone(kernel, workers):
    before = files(kernel.parent)
    swept = Sweep(
        kernel=kernel, root=kernel.parent, kernel_rel="kernel.py", conditions=CONDITIONS, chip=V5E, judge=judge, lanes=2
    )
    results = ranked(list(swept.run([{}, {"BQ": 256}, {"BQ": 100}, {"BQ": 512}])))
    assert files(kernel.parent) == before
    assert [one.verdict.status for one in results[:3]] == [Status.UNCHECKED] * 3
    assert results[3].point == {"BQ": 100}
    assert results[3].verdict.score is None
    latencies = [one.verdict.score.latency_ms for one in results[:3]]
    assert latencies == sorted(latencies)
    best = results[0]
    alone = kernel.with_name("alone.py")
    alone.write_text(edited(ATTENTION, ("BQ = 128", f"BQ = {best.point['BQ']}")) if best.point else ATTENTION)
    request = Request(kernel=alone, root=kernel.parent, kernel_rel="kernel.py", conditions=CONDITIONS, model_only=True)
    assert judge(request, workers=workers).score == best.verdict.score


def run(kernel, *words):
    said = []
    given = options.ratchet(["sweep", "--fresh", str(kernel), *words])
    code = commands.sweep_command(given, root=kernel.parent, kernel=kernel, function=judge, say=said.append)
    assert code == Status.PASS.exit_code
    return said


def test_the_command_prints_every_point(kernel, capsys):
    said = run(kernel, "BQ=128", "--json")
    document = json.loads(capsys.readouterr().out)
    assert len(said) == 2
    assert {str(one["point"]) for one in document["points"]} == {"{}", "{'BQ': 128}"}
    assert [(one["status"], one["latency_ms"] is not None) for one in document["points"]] == [
        ("UNCHECKED", True)
    ] * 2, document
    assert document["kind"] == "modelled"


def test_a_point_is_written_into_the_file(kernel, capsys):
    run(kernel, "BQ=256", "--apply")
    assert kernel.read_text() == edited(ATTENTION, ("BQ = 128", "BQ = 256"))
    assert "BQ 256 in kernel.py: written" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("BQ=128,256", "--apply"), ("NONE=1",), ("BQ",)])
def test_what_cannot_be_swept_is_refused_before_anything_runs(kernel, words):
    with pytest.raises(Refusal) as caught:
        run(kernel, *words)
    assert caught.value.status is Status.USAGE
    assert kernel.read_text() == ATTENTION


def test_a_file_without_a_problem_is_told_how_to_get_one(kernel):
    lock_path(kernel).unlink()
    with pytest.raises(Refusal, match="judge it once") as caught:
        run(kernel, "BQ=128")
    assert caught.value.status is Status.NOT_FOUND


def made(latency_ms, status=Status.UNCHECKED, wait_ms=0.0, banded=False, **point):
    one = verdict(status)
    band = Band(bound_by="bandwidth", low_ms=latency_ms * 0.9, high_ms=latency_ms * 1.1) if banded else None
    score = one.score and dataclasses.replace(one.score, latency_ms=latency_ms, band=band, wait_ms=wait_ms)
    run = one.timeline and dataclasses.replace(one.timeline, cycles=int(latency_ms * 1000))
    return SweepResult(point=point, verdict=dataclasses.replace(one, score=score, timeline=run), seconds=0.0)


@dataclasses.dataclass(frozen=True)
class Checks:
    """Checks values: those of BQ 3 are wrong."""

    values: bool = False

    def run(self, points):
        (point,) = points
        assert self.values
        yield made(1.0, Status.WRONG_VALUES, **point) if point == {"BQ": 3} else made(2.0, Status.PASS, **point)


def test_the_fastest_point_whose_values_are_right_comes_first():
    """The fastest is wrong: it is checked, goes to the end, and the next one is checked."""
    said = []
    given = [made(1.0, BQ=3), made(2.0, BQ=2), made(3.0)]
    ordered = commands._with_values(Checks(), given, said.append)
    assert [(one.point.get("BQ"), one.verdict.status.name) for one in ordered] == [
        (2, "PASS"), (None, "UNCHECKED"), (3, "WRONG_VALUES"),
    ]  # fmt: skip
    assert said[0] == "checking the values of the best: BQ 3"


def test_a_point_that_counts_as_the_same_is_not_the_one_that_is_checked():
    said = []
    given = [
        made(2.98, wait_ms=1.48, banded=True, BQ=1),
        made(2.99, wait_ms=1.5, banded=True, BQ=2),
        made(3.0, wait_ms=1.5, banded=True),
    ]
    commands._with_values(Checks(), given, said.append)
    assert said[0] == "checking the values of the best: BQ 2"
