"""Explaining a kernel file for its own inputs."""

from dataclasses import replace

import pytest

from ratchet.commands import options, targets
from ratchet.exam.candidate.target import GENERATOR, Exported, inline, parse
from ratchet.exam.problem import problem as problems
from ratchet.values.status import Refusal, Status
from tests.imports import HERE

FILE = HERE / "examples" / "grouped_matmul.py"


@pytest.fixture(scope="module")
def frozen():
    return problems.read(problems.lock_path(FILE))


def exported(inputs):
    return Exported(program=b"", inputs=inputs, outputs=(), files={}, imported=(), jax_version="", jail="", seconds=0.0)


def test_the_frozen_problem_of_a_file_steers_its_own_inputs_alone(frozen):
    target, own = parse(str(FILE)), inline([GENERATOR])
    assert targets._frozen(target, own, exported(frozen.inputs)) == frozen
    assert targets._frozen(target, own, exported(frozen.inputs[:1])) is None, "frozen for others"
    assert targets._frozen(target, inline(["f32[8,128]"]), exported(frozen.inputs)) is None
    other = replace(target, module="nowhere")
    assert targets._frozen(other, own, exported(frozen.inputs)) is None


@pytest.mark.parametrize(
    ("given", "done"), [((), "traced, compiled and modelled"), (("--vmem",), "traced and compiled")]
)
def test_what_may_take_minutes_is_said_before_it_begins(monkeypatch, given, done):
    def refused(*_arguments, **_keywords):
        raise Refusal(Status.TIMEOUT, "too long")

    said = []
    monkeypatch.setattr(targets, "_explained", refused)
    asked = options.ratchet(["explain", str(FILE), "--chip", "v5p", *given])
    with pytest.raises(Refusal, match="too long"):
        targets.explain_command(asked, say=said.append)
    assert said == [f"grouped_matmul:kernel_fn: {done} for v5p …"]


@pytest.mark.slow
def test_a_kernel_steered_by_its_inputs_is_explained_as_it_is_judged(frozen):
    target, case = parse(str(FILE)), inline([GENERATOR])
    with targets.Compilers.start() as compilers:
        found = targets._explained(target, case, compilers, modelled=True, trace=None)
    assert found.reason == ""
    assert found.timeline.cycles > 0
