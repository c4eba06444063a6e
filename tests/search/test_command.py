"""``./ratchet.sh search`` as it is called, with a judge that computes what constants are worth."""

import json

import pytest

from ratchet.commands import options
from ratchet.commands import search as commands
from ratchet.loop.experiment import Idea
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage
from tests.search import fakes


@pytest.fixture
def stage(fresh: Stage) -> Stage:
    pytest.importorskip("optuna")
    return fresh


def call(stage: Stage, *words: str) -> tuple[int, list[str]]:
    said: list[str] = []
    given = options.ratchet(["search", *words])
    code = commands.search_command(
        given, root=stage.root, kernel=stage.root / "kernel.py", function=fakes.function, say=said.append
    )
    return code, said


def test_the_best_the_runners_up_and_the_ending_are_printed(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = call(stage, "--how", "neighbours", "--budget", "9")
    out = capsys.readouterr().out
    assert code == Status.PASS.exit_code
    assert "HEAD's kernel first" in said
    head, first, *_ = out.splitlines()
    assert head.split() == ["ms", "VMEM", "row", "outcome"]
    assert first.startswith("BQ 256, BKV 128, SKIP")
    assert "9 trials, 8 judged now" in out
    assert "the budget of trials is used up" in out
    assert len(stage.rows()) == 9


def test_a_document_holds_every_trial(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = call(stage, "--how", "grid", "--knob", "BQ=64,512", "--knob", "SKIP=False", "--knob", "BKV=64", "--json")
    document = json.loads(capsys.readouterr().out)
    assert code == Status.NOT_BETTER.exit_code
    assert document["ending"] == "SPACE"
    assert [(one["point"]["BQ"], one["status"]) for one in document["trials"]] == [
        (64, "PASS"),
        (512, "WRONG_VALUES"),
    ]
    assert document["start"] == {"BQ": 64, "BKV": 64, "SKIP": False}


def test_edits_of_the_users_are_not_searched_over(stage: Stage) -> None:
    stage.run(idea=Idea(message="baseline"), judge=fakes.judge(stage.root))
    stage.write(fakes.KERNEL + "# mine\n")
    with pytest.raises(Refusal, match="differs from HEAD's") as caught:
        call(stage)
    assert caught.value.status is Status.DIRTY


@pytest.mark.parametrize(
    "words",
    [["--time", "2"], ["--time", "h"], ["--time", "1.2.3s"], ["--time", "0s"], ["--budget", "0"], ["--budget", "x"]],
)
def test_what_is_no_limit_is_refused(words: list[str]) -> None:
    with pytest.raises(Refusal, match="wanted") as caught:
        options.ratchet(["search", *words])
    assert caught.value.status is Status.USAGE


def test_times_are_read() -> None:
    read = [options.ratchet(["search", "--time", text]).time for text in ("90s", "30m", "2h", "1h30m", "0.5h")]
    assert read == [90, 1800, 7200, 5400, 1800]
