"""The judge as the loop calls it: whatever goes wrong while judging, the turn has its row."""

import argparse
import contextlib
import dataclasses
from unittest.mock import create_autospec

import pytest

from prepare import judge
from ratchet import wiring
from ratchet.commands import cli, experiment, options
from ratchet.exam.judge import audit
from ratchet.exam.judge.steps import Silent
from ratchet.loop import log
from ratchet.tpu.chips import CHIPS
from ratchet.values import Decision
from ratchet.values.status import Refusal, Status
from ratchet.values.verdict import MODELLED_STEPS
from ratchet.wiring import RepositoryJudge, across, evaluator, make_folders
from tests.exam.judge.programs import request_of
from tests.kernels import ATTENTION
from tests.loop.stage import Stage, verdict_of
from tests.view.timelines import row, verdict


def repository_judge(stage: Stage, function) -> RepositoryJudge:
    return RepositoryJudge.modelling(stage.root, function)


def test_a_judge_that_fails_unexpectedly_leaves_a_row_and_its_traceback(tmp_path):
    stage = Stage.new(tmp_path / "repository")
    (stage.root / ".gitignore").write_text("hlo_dumps/\nprofile_data/\n")
    stage.git("commit", "-qam", "ignore evidence")

    def fails(request, *, workers=None, progress=None):
        raise ZeroDivisionError("integer modulo by zero")

    outcome = stage.run("baseline", judge=repository_judge(stage, fails))
    assert outcome.status is Status.INTERNAL
    (row,) = stage.rows()
    assert (row.status, row.decision, row.score) == ("INTERNAL", Decision.BASELINE, "")
    assert "ZeroDivisionError: integer modulo by zero" in row.reason
    text = (stage.root / "hlo_dumps" / row.id / "internal-error.txt").read_text()
    assert "Traceback" in text
    assert "in fails" in text
    assert row.evidence
    assert log.verify(stage.root) == ()


def test_a_step_that_fails_unexpectedly_is_a_verdict(tmp_path, monkeypatch, workers):
    def fails(program):
        raise ZeroDivisionError("integer modulo by zero")

    monkeypatch.setattr(audit, "program", fails)
    evidence = tmp_path / "evidence"
    verdict = judge(request_of(tmp_path, ATTENTION, evidence=evidence), workers=workers)
    assert verdict.status is Status.INTERNAL, verdict.reason
    assert verdict.reason.startswith("kernel: ZeroDivisionError: integer modulo by zero")
    assert verdict.score is None
    assert [step.name for step in verdict.steps if step.status is not Status.PASS] == ["kernel"]
    assert [step.name for step in verdict.steps] == [*MODELLED_STEPS]
    assert "Traceback" in (evidence / "internal-error.txt").read_text()
    assert not (tmp_path / "kernel.py.lock.json").exists()


def test_a_refusal_and_trouble_of_the_machine_go_through(tmp_path):
    stage = Stage.new(tmp_path / "repository")
    for error in (Refusal(Status.NO_SPACE, "full"), OSError(5, "broken")):

        def fails(request, *, workers=None, progress=None, error=error):
            raise error

        with pytest.raises(type(error)):
            repository_judge(stage, fails).judge(stage.root / "kernel.py", kernel_rel="kernel.py", evidence_id="one")


def test_folders_for_evidence_are_ignored_and_keep_their_page(tmp_path):
    stage = Stage.new(tmp_path / "repository")
    make_folders(stage.root)
    (stage.root / "hlo_dumps" / "README.md").write_text("what is here\n")
    (stage.root / "hlo_dumps" / "one").mkdir()
    (stage.root / "hlo_dumps" / "one" / "blame.txt").write_text("cycles\n")
    make_folders(stage.root)
    (stage.root / ".gitignore").write_text("")
    status = stage.git("status", "--porcelain", "--untracked-files=all").splitlines()
    assert sorted(status) == [" M .gitignore", "?? hlo_dumps/README.md"]


def test_a_device_that_is_not_there_is_refused_at_once(monkeypatch):
    monkeypatch.setattr("ratchet.exam.measure.devices.gpu", lambda: "")
    with pytest.raises(Refusal, match="no GPU is attached"):
        evaluator("gpu")
    assert evaluator("v5e-model") == "v5e-model"


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_what_cannot_be_shown_does_not_change_what_was_recorded(tmp_path, monkeypatch, capsys, arguments):
    stage = Stage.new(tmp_path / "repository")
    (stage.root / ".gitignore").write_text("hlo_dumps/\nprofile_data/\n")
    stage.git("commit", "-qam", "ignore evidence")

    def judged(request, *, workers=None, progress=None):
        return verdict_of(request.kernel.read_text(), conditions=request.conditions)

    def fails(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "_root", lambda: stage.root)
    monkeypatch.setattr(experiment, "report", fails)
    monkeypatch.setattr(experiment, "verdict_document", fails)
    assert cli.main(["baseline", *arguments], judged) == 0
    (row,) = stage.rows()
    shown = capsys.readouterr()
    assert f"show {row.id}" in shown.err
    assert shown.out.startswith("RESULT: score=1000") != bool(arguments)
    assert [evaluator(name) for name in ("v5e-model", "v6e-model")] == ["v5e-model", "v6e-model"]
    with pytest.raises(Refusal, match="'v9-model' is no evaluator; wanted one of tpu, gpu, cpu, v5e-model") as refusal:
        evaluator("v9-model")
    assert refusal.value.status is Status.USAGE


class Waiting:
    """Stands for the workers of processes that wait, made under a seal."""

    def __init__(self, seal):
        self.seal, self.began, self.closed = seal, [], False

    def begin(self, request):
        self.began.append(request)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True


@pytest.mark.parametrize(("seal", "used"), [("the judge's", True), ("another", False)])
def test_a_file_is_traced_before_it_is_judged_by_workers_of_the_same_seal(tmp_path, monkeypatch, seal, used):
    stage, asked = Stage.new(tmp_path / "repository"), []

    def judged(request, *, workers=None, progress=None):
        asked.append(workers)
        return verdict()

    monkeypatch.setattr(wiring, "recent_seal", lambda root: "the judge's")
    monkeypatch.setattr(wiring.Workers, "waiting", lambda chip: waiting)
    waiting, kernel = Waiting(seal), stage.root / "kernel.py"
    with repository_judge(stage, judged).tracing(kernel) as one:
        one.judge(kernel, kernel_rel="kernel.py")
        assert not waiting.closed
    assert waiting.closed
    assert asked == [waiting if used else None]
    (request,) = waiting.began
    assert (request.source, request.name, request.chip) == (kernel.read_bytes(), "kernel.py", CHIPS["v5e"])


def test_nothing_is_traced_before_where_there_is_no_model_no_process_or_no_file(tmp_path, monkeypatch):
    stage, waiting = Stage.new(tmp_path / "repository"), Waiting("one")
    one, kernel = repository_judge(stage, None), stage.root / "kernel.py"
    monkeypatch.setattr(wiring.Workers, "waiting", lambda chip: None)
    for judge_of in (one, dataclasses.replace(one, evaluator="cpu")):
        with judge_of.tracing(kernel) as same:
            assert same == judge_of
    monkeypatch.setattr(wiring.Workers, "waiting", lambda chip: waiting)
    with one.tracing(tmp_path / "none.py"):
        assert not waiting.began
    assert waiting.closed


def test_across_asks_for_each_chip_once_with_the_same_bytes_and_workers(tmp_path, monkeypatch):
    class Children(contextlib.nullcontext):
        def __init__(self, *_, **__):
            super().__init__(self)

    monkeypatch.setattr("ratchet.exam.judge.workers.Workers", Children)
    kernel, asked = tmp_path / "kernel.py", []
    kernel.write_text("first")

    def judged(request, *, workers=None, progress=None):
        asked.append((request.conditions.evaluator, request.chip.name, request.kernel.read_text(), workers))
        kernel.write_text("edited while it is judged")
        if request.chip.name == "v4":
            raise ZeroDivisionError
        return dataclasses.replace(verdict(), conditions=request.conditions)

    found = across(kernel, root=tmp_path, kernel_rel="kernel.py", function=judged, progress=Silent())
    assert [name for name, *_ in asked] == [f"{chip}-model" for chip in CHIPS]
    assert [chip for _, chip, *_ in asked] == list(CHIPS)
    assert {source for *_, source, _ in asked} == {"first"}
    assert len({id(workers) for *_, workers in asked}) == 1
    assert [one.status is Status.PASS for one in found] == [chip != "v4" for chip in CHIPS]
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.py"], "no row and no evidence"


@pytest.mark.parametrize("name", ["prepare", *options.COMMANDS])
def test_a_command_gets_what_its_keywords_name(name, monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "_root", lambda: tmp_path)
    command = create_autospec(options.function(name, "command"), return_value=7)
    assert cli.call(command, argparse.Namespace(kernel=None), judge) == 7


def test_a_kernel_is_modelled_again_for_a_report_once(tmp_path):
    """Its compiler, schedule and trace are those of a verdict; no row and no evidence of an experiment comes of it."""
    source = ATTENTION.encode()
    one = row(id="e1", kernel="a folder/kernel.py", chip="v5e", kernel_blob="b1")
    said = []
    folder = wiring.modelled_again(tmp_path, one, source, judge, said.append)
    assert folder is not None
    assert (folder / "hlo_dumps" / "timeline.json").is_file()
    assert wiring.trace_of(folder / "profile_data", "e1").is_file()
    assert said == [
        "modelling a folder/kernel.py for its cycles, minutes for a large kernel: its evidence is not on this disk "
        "(--no-judge leaves it out)"
    ]
    assert wiring.modelled_again(tmp_path, one, source, judge, said.append) == folder
    assert len(said) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".ratchet"]
    wrong = wiring.modelled_again(tmp_path, row(id="e2", kernel="k.py", chip="v5e"), b"1 +", judge, said.append)
    assert wrong is None
    assert said[-1].startswith("k.py could not be modelled: ")

    def killed(request, **_):
        request.evidence.mkdir(parents=True)
        (request.evidence / "timeline.json").write_text("{}")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wiring.modelled_again(tmp_path, row(id="e4", kernel="k.py", chip="v5e"), source, killed, said.append)
    assert [path.name for path in (tmp_path / ".ratchet").glob("modelled*/*")] == [folder.name], "none in part"
    assert wiring.modelled_again(tmp_path, row(id="e3", kernel="k.py", chip="A100"), b"", judge, said.append) is None


def test_evidence_that_goes_is_said_and_each_kernels_incumbent_stays(tmp_path, monkeypatch):
    rows = [
        row(
            id=f"e{number:02}",
            kernel="a.py" if number < 2 else "b.py",
            median_ms="1.0",
            decision=Decision.KEPT if number in (0, 3) else Decision.REVERTED,
        )
        for number in range(26)
    ]
    monkeypatch.setattr(wiring.log, "rows", lambda _root: tuple(rows))
    monkeypatch.setattr(wiring.log, "experiments", lambda _root: tuple(one.id for one in rows))
    for one in rows:
        wiring.make_folders(tmp_path, one.id)
        (tmp_path / "hlo_dumps" / one.id).mkdir(exist_ok=True)
        (tmp_path / "hlo_dumps" / one.id / "blame.txt").write_text("x")
    said = []
    wiring.prune_evidence(tmp_path, (rows[2], None), said.append)
    left = {path.name for path in (tmp_path / "hlo_dumps").iterdir() if path.is_dir()}
    assert {"e00", "e02", "e03", "e06", "e25"} <= left
    assert not {"e01", "e04", "e05"} & left
    (line,) = said
    assert line.startswith("evidence of 3 older experiments was removed from hlo_dumps/: 20 experiments, 1 GiB")
