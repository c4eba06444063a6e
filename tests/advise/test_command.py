"""``ratchet advise`` from a ledger and what is on disk: text, JSON, patches, edits, refusals."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ratchet.advise.advice import Edit
from ratchet.commands import advise as commands
from ratchet.commands import options
from ratchet.loop.recorded import to_bytes, without_spans
from ratchet.values.status import Refusal, Status
from ratchet.wiring import DUMPS, TIMELINE
from tests.advise.sources import ATTENTION, edits, run
from tests.loop.stage import Stage

FILE = "a kernel of <b>ours.py"
FAST = "TIMES = 2.0, 0.4\nSCORE = 10.0\n"
SCALE = Edit.SCALE.value


@pytest.fixture
def judged(tmp_path: Path) -> Stage:
    """A kernel of an odd name with a row, and the modelled run of it."""
    stage = Stage.new(tmp_path / "repository", kernel=FILE)
    stage.write(ATTENTION + FAST)
    stage.git("add", ".")
    stage.git("commit", "-qm", "the kernel")
    stage.run("baseline")
    modelled(stage)
    return stage


def modelled(stage: Stage) -> None:
    folder = stage.root / DUMPS / stage.rows()[-1].id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TIMELINE).write_bytes(to_bytes(without_spans(run(FILE))))


def run_command(stage: Stage, *words: str, file: str = FILE) -> int:
    return commands.advise_command(options.ratchet(["advise", file, *words]), root=stage.root, kernel=stage.root / file)


def called(stage: Stage, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run_command(stage, *words) == Status.PASS.exit_code
    return capsys.readouterr().out


def document(stage: Stage, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    return json.loads(called(stage, capsys, "--json", *words))  # type: ignore[no-any-return]


def test_the_text_has_each_advice_with_evidence_prediction_and_confidence(judged, capsys):
    text = called(judged, capsys)
    assert text.startswith(f"{FILE}: 2.0000 ms, row {judged.rows()[-1].id}\n1. ")
    assert "evidence: grid steps that do no product: " in text
    assert "confidence 50%: not tried in this ledger yet" in text
    assert text.count("\n   predicted ") == 5
    assert "more: --most " in text
    assert judged.read() == ATTENTION + FAST


def test_the_document_has_a_patch_that_git_applies(judged, capsys):
    made = document(judged, capsys, "--most", "100")
    assert made["kernel"] == FILE
    advice = made["advice"]
    assert {one["kind"] for one in advice} >= {"tiling", "algorithm", "precision", "layout"}
    assert [one["number"] for one in advice] == list(range(1, len(advice) + 1))
    assert [one["changes"] for one in advice if one["edit"] == "scale an operand"] == ["one function, _mix"]
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


def test_what_was_tried_and_lost_is_not_advised_again_and_its_kind_is_trusted_less(judged, capsys):
    (scale,) = [one for one in document(judged, capsys, "--most", "100")["advice"] if one["edit"] == SCALE]
    judged.write(edits(judged.read(), Edit.SCALE)[0].after.decode())
    judged.run("as advised")
    assert judged.rows()[-1].status == Status.NOT_BETTER.name
    advice = document(judged, capsys, "--most", "100")["advice"]
    assert scale["followed"] == 0
    assert [one for one in advice if one["edit"] == SCALE] == []
    judged.write(wider := judged.read().replace("ACROSS = 64", "ACROSS = 128").replace("SCORE = 10.0", "SCORE = 20.0"))
    judged.run("by hand")
    modelled(judged)
    assert judged.read() == wider
    (again,) = [one for one in document(judged, capsys, "--most", "100")["advice"] if one["edit"] == SCALE]
    assert (again["followed"], again["kept"], again["lost_before"]) == (1, 0, [judged.rows()[1].id])
    assert again["confidence"] == pytest.approx(1 / 6, abs=1e-3)
    assert f"the same edit of another version was not kept: row {judged.rows()[1].id}" in called(
        judged, capsys, "--most", "100"
    )


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
    stage.run("baseline")
    modelled(stage)
    assert "no advice: " in called(stage, capsys)
    assert document(stage, capsys)["advice"] == []
    with pytest.raises(Refusal, match="every edit that it knows was tried"):
        run_command(stage, "--apply", "1")
