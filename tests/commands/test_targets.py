"""Explaining a kernel file for its own inputs."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest

from ratchet.commands import options, targets
from ratchet.exam.candidate.target import GENERATOR, Exported, inline, parse
from ratchet.exam.problem import problem as problems
from ratchet.tpu.compiler.compile import PROGRAM
from ratchet.values import Explanation
from ratchet.values.omission import Unmodelled
from ratchet.values.status import Refusal, Status
from tests.imports import HERE
from tests.view.timelines import timeline

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


class Judging:
    """Stands for the children of the judge and for what asks them: tables that steer follow from floats."""

    def __init__(self, *_, root=None, **__):
        self.root = root or Path(tempfile.mkdtemp())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root)

    def steered(self, *_):
        return ({0: "an input"}, [{"0:1": "a table"}]), (Unmodelled.FLOAT_TABLES,)


def test_what_a_verdict_says_of_tables_from_floats_is_said(frozen, monkeypatch, tmp_path):
    program = SimpleNamespace(dump_dir=tmp_path, chip="v5e", chip_ids=(0, 1))
    (tmp_path / PROGRAM).write_bytes(b"")
    steered = []

    def explained(*_, steering, **__):
        steered.append(steering(program))
        return Explanation(title="", chip="v5e", compiler="", status=Status.PASS, reason="", timeline=timeline())

    monkeypatch.setattr(targets, "explain_artefact", explained)
    monkeypatch.setattr(targets, "Workers", Judging)
    monkeypatch.setattr(targets, "Examiner", Judging)
    monkeypatch.setattr(targets.Compilers, "child", lambda *_: None)
    with targets.Compilers.start() as compilers:
        found = compilers.explained(create_autospec(Exported), "v5e", "a kernel", frozen=frozen)
    assert steered == [{0: "an input", "0:1": "a table"}]
    assert found.timeline.not_modelled[0] is Unmodelled.FLOAT_TABLES


@pytest.mark.slow
def test_a_kernel_steered_by_its_inputs_is_explained_as_it_is_judged(frozen):
    target, case = parse(str(FILE)), inline([GENERATOR])
    with targets.Compilers.start() as compilers:
        found = targets._explained(target, case, compilers, modelled=True, trace=None)
    assert found.reason == ""
    assert found.timeline.cycles > 0
