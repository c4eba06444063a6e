"""``ratchet advise`` and ``brief`` from a ledger and what is on disk: text, JSON, patches, edits, refusals."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.advise.advice import Edit
from ratchet.advise.prediction import Prediction
from ratchet.commands import advise as commands
from ratchet.commands import options
from ratchet.exam.judge.request import Request
from ratchet.loop.recorded import to_bytes, without_spans
from ratchet.process import key
from ratchet.search import sweep
from ratchet.search.predictions import Kept
from ratchet.values import Band, Verdict
from ratchet.values.status import Refusal, Status
from ratchet.wiring import DUMPS, TIMELINE, RepositoryJudge
from tests.advise.sources import ATTENTION, run
from tests.loop.stage import CONDITIONS, Stage, verdict_of
from tests.search import fakes

FILE = "a kernel of <b>ours.py"
FAST = "TIMES = 2.0, 0.4\nSCORE = 10.0\n"
SCALE = Edit.SCALE.value


class Model:
    """A judge that reads a verdict from the kernel file, and what it was asked."""

    def __init__(self) -> None:
        self.modelled: list[str] = []
        self.checked: list[str] = []

    def __call__(self, request: Request, *, workers: object = None, progress: object = None) -> Verdict:
        text = request.kernel.read_text()
        (self.modelled if request.model_only else self.checked).append(text)
        one = replace(verdict_of(text, request.kernel_rel, request.conditions), timeline=None)
        ms = self.latency_ms(text)
        if ms is None:
            return replace(one, status=Status.VMEM_OVERFLOW, score=None, reason="it needs 20 MiB; and so on")
        if not request.model_only and "exp2" in text:
            return replace(one, status=Status.WRONG_VALUES, score=None, reason="worst error 7.5 of its allowance")
        assert one.score is not None
        status = Status.UNCHECKED if request.model_only else Status.PASS
        band = Band(bound_by="compute", low_ms=ms / 1.06, high_ms=ms * 1.06)
        return replace(one, status=status, score=replace(one.score, latency_ms=ms, wait_ms=0.4, band=band))

    @staticmethod
    def latency_ms(text: str) -> float | None:
        """Blocks along twice as long win most, an exponential to base 2 with wrong values next; strips lose."""
        if "ACROSS = 256" in text:
            return None
        factor = 0.5 if "ALONG = 512" in text else 0.6 if "exp2" in text else 0.9 if "ACROSS = 128" in text else 1.1
        return 2.0 if text == ATTENTION + FAST else 2.0 * factor


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of this test's own, no children, and conditions that take no time to find out."""
    monkeypatch.setattr(key, "path", lambda: tmp_path / "home" / "key")
    monkeypatch.setattr(sweep, "Workers", lambda *_arguments, **_options: fakes.Children())
    monkeypatch.setattr(RepositoryJudge, "conditions", lambda _self, _kernel: CONDITIONS)


@pytest.fixture
def judged(tmp_path: Path) -> Stage:
    """A kernel of an odd name with a row, and the modelled run of it."""
    stage = Stage.new(tmp_path / "repository", kernel=FILE)
    stage.write(ATTENTION + FAST)
    stage.lock.write_text("{}")
    stage.git("add", ".")
    stage.git("commit", "-qm", "the kernel")
    stage.run("baseline")
    modelled(stage)
    return stage


def modelled(stage: Stage) -> None:
    folder = stage.root / DUMPS / stage.rows()[-1].id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TIMELINE).write_bytes(to_bytes(without_spans(run(FILE))))


def run_command(stage: Stage, *words: str, file: str = FILE, model: Model | None = None, said: list[str] | None = None):
    given = options.ratchet(["advise", file, *words])
    say = (said if said is not None else []).append
    return commands.advise_command(given, root=stage.root, kernel=stage.root / file, function=model or Model(), say=say)


def called(stage: Stage, capsys: pytest.CaptureFixture[str], *words: str, model: Model | None = None) -> str:
    assert run_command(stage, *words, model=model) == Status.PASS.exit_code
    return capsys.readouterr().out


def document(stage: Stage, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    return json.loads(called(stage, capsys, "--json", *words))  # type: ignore[no-any-return]


def briefly(stage: Stage, capsys: pytest.CaptureFixture[str]) -> str:
    given = options.ratchet(["brief", FILE])
    assert commands.brief_command(given, root=stage.root, kernel=stage.root / FILE) == Status.PASS.exit_code
    return capsys.readouterr().out.partition("## What to try")[2].partition("\n##")[0]


def test_only_what_is_modelled_as_faster_is_shown_the_fastest_first(judged, capsys):
    said: list[str] = []
    run_command(judged, said=said)
    text = capsys.readouterr().out
    assert text.startswith(f"{FILE}: 2.0000 ms, row {judged.rows()[-1].id}\n1. tiling: larger blocks, ALONG 512\n")
    assert "predicted 1.0000 ms (0.94340 to 1.0600), -50.0 %: 1.00 ms less issuing; values checked\n" in text
    assert "   in this ledger: not tried yet\n   about: waiting for copies: " in text
    assert text.count("\n   predicted ") == 2
    assert Edit.STRIPS.value not in text
    assert re.search(r"\nmodelled, and no advice: \d+ slower, .*2 with wrong values; --all lists them\n", text)
    failed = text.partition("cannot be modelled: 2\n")[2].splitlines()
    assert failed[:2] == [
        f"   larger blocks{higher}, ACROSS 256: VMEM_OVERFLOW: it needs 20 MiB"
        for higher in ("", " under a higher VMEM limit")
    ]
    assert f"to make the first edit: ./ratchet.sh advise '{FILE}' --apply 1" in text
    assert "at best" not in text
    assert any(line.endswith("as it is: 2.0000 ms (0.0 s)") for line in said)
    assert judged.read() == ATTENTION + FAST


def test_what_is_no_advice_is_listed_where_all_is_asked_for(judged, capsys):
    text = called(judged, capsys, "--all")
    assert "2.2000 ms, +10.0 %, slower; strips of rows, _see\n" in text
    assert "1.2000 ms, -40.0 %, wrong: worst error 7.5 of its allowance; exponentials to base 2, " in text


def test_the_second_call_models_nothing_and_neither_do_apply_and_brief(judged, capsys):
    assert "not modelled yet: " in briefly(judged, capsys)
    first = Model()
    text = called(judged, capsys, model=first)
    assert len(first.modelled) > 8
    assert len(first.checked) >= 2
    again = Model()
    assert called(judged, capsys, model=again) == text
    assert briefly(judged, capsys).splitlines()[1:3] == [
        "1. larger blocks, ALONG 512: 1.0000 ms, -50.0 %, values checked",
        "2. larger blocks, ACROSS 128: 1.8000 ms, -10.0 %, values checked",
    ]
    called(judged, capsys, "--patch", "2", model=again)
    called(judged, capsys, "--apply", "1", model=again)
    assert again.modelled == again.checked == []
    assert "ALONG = 512" in judged.read()
    judged.write(ATTENTION + FAST)
    assert called(judged, capsys, "--fresh", model=again) == text
    assert len(again.modelled) == len(first.modelled)


def test_a_file_that_was_saved_while_its_edits_were_modelled_is_not_overwritten(judged):
    class Saving(Model):
        def __call__(self, request: Request, *, workers: object = None, progress: object = None) -> Verdict:
            judged.write(ATTENTION + FAST + "# mine\n")
            return super().__call__(request)

    with pytest.raises(Refusal, match="changed while its edits were modelled") as refused:
        run_command(judged, "--apply", "1", model=Saving())
    assert refused.value.status is Status.DIRTY
    assert judged.read() == ATTENTION + FAST + "# mine\n"


def test_calls_beside_each_other_and_fresh_ones_add_to_what_is_kept(judged):
    one, other, newer = (Prediction(status=Status.UNCHECKED, reason=text, score=None) for text in "abc")
    kept = Kept(root=judged.root, kernel=FILE, conditions=CONDITIONS)
    kept.add({"1": one, "2": other})
    kept.add({"1": newer, "3": replace(one, status=Status.NO_SPACE)})
    assert list(kept.read().items()) == [("2", other), ("1", newer)], "the newest last"


@pytest.mark.parametrize("status", [Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.NO_SPACE, Status.INFRASTRUCTURE])
def test_values_that_the_machine_did_not_check_are_not_wrong(status):
    one = Prediction(status=Status.UNCHECKED, reason="modelled", score=None)
    verdict = verdict_of(FAST, FILE, CONDITIONS)
    assert one.with_values(replace(verdict, status=status, score=None, reason="")) == one
    assert one.with_values(replace(verdict, status=Status.WRONG_VALUES, score=None)).status is Status.WRONG_VALUES


def test_what_is_kept_under_other_conditions_or_was_edited_is_not_used(judged, capsys, monkeypatch):
    called(judged, capsys)
    monkeypatch.setattr(RepositoryJudge, "conditions", lambda _self, _kernel: replace(CONDITIONS, compiler="another"))
    assert "not modelled yet: " in briefly(judged, capsys)
    monkeypatch.setattr(RepositoryJudge, "conditions", lambda _self, _kernel: CONDITIONS)
    assert "not modelled yet: " not in briefly(judged, capsys)
    (file,) = (judged.root / ".ratchet" / "predictions").iterdir()
    mac, _, data = file.read_bytes().partition(b"\n")
    file.write_bytes(mac + b"\n" + data[:-1] + bytes([data[-1] ^ 1]))
    assert "not modelled yet: " in briefly(judged, capsys)


def test_what_the_budget_does_not_reach_is_counted_and_left_for_the_next_call(judged, capsys):
    model = Model()
    text = called(judged, capsys, "--budget", "0", model=model)
    assert model.modelled == []
    left = re.search(r"not modelled yet: (\d+); the same command goes on with them", text)
    assert "no advice: of 0 edits that were modelled none is faster yet" in text
    assert int(left[1]) > 8
    with pytest.raises(Refusal, match=rf"no advice for .*: 0 edits were modelled .*{left[1]} are left: --budget"):
        run_command(judged, "--budget", "0", "--apply", "1")
    assert document(judged, capsys, "--budget", "0")["not_modelled"] == int(left[1])


def test_a_measured_incumbent_is_shown_beside_what_is_modelled(judged, capsys, monkeypatch):
    row = replace(judged.rows()[-1], evaluator="tpu", median_ms="3.5")
    monkeypatch.setattr(commands, "_incumbent", lambda *_: (row, run(FILE)))
    assert called(judged, capsys).startswith(f"{FILE}: 3.5000 ms measured; 2.0000 ms modelled now, row ")


def test_a_file_that_cannot_be_modelled_is_refused(judged):
    class Failing(Model):
        @staticmethod
        def latency_ms(text: str) -> float | None:
            return None

    with pytest.raises(Refusal, match="the file as it is cannot be modelled: it needs 20 MiB") as refused:
        run_command(judged, model=Failing())
    assert refused.value.status is Status.VMEM_OVERFLOW
    judged.lock.unlink()
    with pytest.raises(Refusal, match="has no frozen problem any more"):
        run_command(judged)


def test_the_document_has_a_patch_that_git_applies(judged, capsys):
    made = document(judged, capsys, "--most", "100")
    assert made["kernel"] == FILE
    advice = made["advice"]
    assert [(one["number"], one["title"], one["predicted_ms"], one["values_checked"]) for one in advice] == [
        (1, "larger blocks, ALONG 512", 1.0, True),
        (2, "larger blocks, ACROSS 128", 1.8, True),
    ]
    assert (made["modelled_ms"], made["wait_ms"], made["not_modelled"]) == (2.0, 0.4, 0)
    assert {one["fate"] for one in made["tried"]} == {"slower", "wrong"}
    assert [one["title"] for one in made["failed"]] == [
        "larger blocks, ACROSS 256",
        "larger blocks under a higher VMEM limit, ACROSS 256",
    ]
    assert [one["changes"] for one in advice] == ["one constant, ALONG", "one constant, ACROSS"]
    for one in advice:
        done = subprocess.run(
            ["git", "apply", "--check", "-"], cwd=judged.root, input=one["patch"].encode(), check=False
        )
        assert not done.returncode


def test_an_edit_is_made_in_the_file_or_printed(judged, capsys):
    (first,) = document(judged, capsys, "--patch", "1")["advice"]
    assert called(judged, capsys, "--patch", "1") == first["patch"]
    assert judged.read() == ATTENTION + FAST
    said = called(judged, capsys, "--apply", "1")
    assert said.startswith(f"{first['title']}: written into {FILE}; judge it: ")
    assert judged.read() != ATTENTION + FAST


def test_what_was_tried_and_lost_is_not_advised_again_and_the_ledger_says_what_came_of_its_like(judged, capsys):
    (larger, _) = document(judged, capsys)["advice"]
    judged.write(judged.read().replace("ALONG = 256", "ALONG = 512"))
    judged.run("as advised")
    assert judged.rows()[-1].status == Status.NOT_BETTER.name
    advice = document(judged, capsys)["advice"]
    assert larger["followed"] == 0
    assert [(one["title"], one["followed"], one["kept"]) for one in advice] == [("larger blocks, ACROSS 128", 1, 0)]
    judged.write(judged.read().replace("ACROSS = 64", "ACROSS = 32").replace("SCORE = 10.0", "SCORE = 20.0"))
    judged.run("by hand")
    modelled(judged)
    again = next(one for one in document(judged, capsys)["advice"] if one["title"] == larger["title"])
    assert (again["followed"], again["kept"], again["lost_before"]) == (1, 0, [judged.rows()[1].id])
    assert f"the same edit of another version was not kept: row {judged.rows()[1].id}" in called(judged, capsys)


def test_what_cannot_be_advised_is_refused_and_says_why(judged):
    for words, match in ((["--apply", "99"], "there is no advice 99"), (["--patch", "99"], "wanted 1 to ")):
        with pytest.raises(Refusal, match=match):
            run_command(judged, *words)
    assert judged.read() == ATTENTION + FAST
    with pytest.raises(Refusal, match="is no file"):
        run_command(judged, file="no.py")
    judged.write(ATTENTION + FAST + "# more\n")
    with pytest.raises(Refusal, match="as it is has no row with a score") as refused:
        run_command(judged)
    assert refused.value.status is Status.NOT_FOUND
    judged.write("def (")
    with pytest.raises(Refusal, match="invalid syntax"):
        run_command(judged)
    judged.write(ATTENTION + FAST)
    (judged.root / DUMPS / judged.rows()[-1].id / TIMELINE).unlink()
    with pytest.raises(Refusal, match=r"not on this disk any more: .*--fresh"):
        run_command(judged)


def test_nothing_is_said_of_a_kernel_without_a_pattern(tmp_path, capsys):
    stage = Stage.new(tmp_path / "repository", kernel=FILE)
    stage.lock.write_text("{}")
    stage.git("add", ".")
    stage.git("commit", "-qm", "its problem")
    stage.run("baseline")
    modelled(stage)
    assert "no advice: " in called(stage, capsys)
    assert document(stage, capsys)["advice"] == []
    with pytest.raises(Refusal, match="0 edits were modelled and none is faster"):
        run_command(stage, "--apply", "1")
