"""The brief: what is in it, that it keeps within its tokens, and its warnings."""

import json
from pathlib import Path

import pytest

from ratchet.commands import advise as commands
from ratchet.commands import options
from ratchet.loop import compare
from ratchet.loop.experiment import Idea
from ratchet.loop.recorded import from_file, to_bytes, without_spans
from ratchet.search.brief import brief
from ratchet.values import Timeline
from ratchet.values.brief import Suggestion, Task
from ratchet.values.status import Refusal, Status
from ratchet.view.brief import CHARACTERS, document_within, text_within
from ratchet.wiring import DUMPS, TIMELINE
from tests.loop.stage import Stage
from tests.search import fakes
from tests.view.timelines import row, verdict

HEAD = 'KERNEL_NAME = "attention"\nPROBLEM_DESCRIPTION = "of one head"\n' + fakes.KERNEL


@pytest.fixture
def judged(tmp_path: Path) -> Stage:
    """Two experiments were kept, and one was reverted."""
    stage = fakes.stage(tmp_path / "repository", HEAD)
    for number, (old, new) in enumerate([
        ("", ""), ("BQ = 64 ", "BQ = 128 "), ("BKV = 64 ", "BKV = 128 "), ("BKV = 128 ", "BKV = 256 "),
    ]):  # fmt: skip
        stage.write(stage.read().replace(old, new, 1) if old else stage.read())
        stage.run(idea=Idea(message=f"idea {number}"), judge=fakes.judge(stage.root))
    return stage


def called(stage: Stage, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = commands.brief_command(options.ratchet(["brief", *words]), root=stage.root, kernel=stage.root / "kernel.py")
    assert code == Status.PASS.exit_code
    return capsys.readouterr().out


def with_evidence(stage: Stage) -> None:
    """As if the incumbent had been modelled."""
    timeline = verdict().timeline
    assert timeline is not None
    folder = stage.root / DUMPS / stage.rows()[2].id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TIMELINE).write_bytes(to_bytes(without_spans(timeline)))
    assert from_file(Timeline, folder / TIMELINE) is not None


def test_a_brief_has_the_incumbent_the_failures_and_what_is_left(
    judged: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    with_evidence(judged)
    text = called(judged, capsys)
    assert text.startswith("# kernel.py: attention\nof one head\n")
    assert f"row {judged.rows()[2].id}" in text
    assert "## Losses that remain" in text
    assert "## Where its cycles go" in text
    assert "Tried and failed: 1 (1 NOT_BETTER)" in text
    assert "idea 3" in text.split("## Tried")[1].split("## Kept")[0]
    assert "idea 2" in text.split("## Kept")[1]
    assert "WARNING" not in text


def test_the_document_has_the_same(judged: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    with_evidence(judged)
    document = json.loads(called(judged, capsys, "--json", "--tokens", "100000"))
    assert document["incumbent"]["latency_ms"] == 2.5
    assert [one["note"] for one in document["failed"]] == ["idea 3"]
    assert document["failed"][0]["reason"].endswith("changes one constant, BKV")
    assert [one["note"] for one in document["kept"]] == ["idea 2", "idea 1"]
    assert document["losses"]
    assert sum(one["share"] for one in document["lines"]) <= 1.001
    assert document["budget"]["experiments"] == 4


@pytest.mark.parametrize("tokens", [50, 300, 1000])
def test_it_keeps_within_its_tokens(judged: Stage, capsys: pytest.CaptureFixture[str], tokens: int) -> None:
    with_evidence(judged)
    assert len(called(judged, capsys, "--tokens", str(tokens))) <= tokens * CHARACTERS + 1
    if tokens == 1000:
        assert len(called(judged, capsys, "--json", "--tokens", "1000")) <= 1000 * CHARACTERS + 1


def test_it_warns_of_a_plateau_and_of_repetition(judged: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no modelled run of the incumbent" in called(judged, capsys)
    head = judged.read()
    for number in range(9):
        judged.write(head.replace("BQ = 128 ", "BQ = 64 ") + "# so\n" * (number // 2))
        judged.run(idea=Idea(message=f"again {number}"), judge=fakes.judge(judged.root))
    text = called(judged, capsys)
    assert "WARNING plateau: 10 experiments since the last that was kept" in text
    assert "WARNING repetition: most of the last failures changed BQ" in text
    assert "WARNING repetition: 4 experiments had the bytes of an earlier one" in text


def test_a_file_that_head_lacks_is_refused(judged: Stage) -> None:
    with pytest.raises(Refusal, match=r"HEAD has no none\.py") as caught:
        commands.brief_command(options.ratchet(["brief"]), root=judged.root, kernel=judged.root / "none.py")
    assert caught.value.status is Status.NOT_FOUND


def made(rows, suggestions=(), no_faster=0, not_modelled=0):
    task = Task(kernel="kernel.py", name="k", description="d", digest="p")
    return brief(
        task=task,
        source=b"",
        incumbent=None,
        timeline=None,
        refuted={},
        rows=rows,
        parts=(),
        suggestions=suggestions,
        no_faster=no_faster,
        not_modelled=not_modelled,
    )


def test_a_brief_says_what_to_try_how_long_a_turn_takes_and_what_counts() -> None:
    rows = tuple(row(id=str(n), seconds=s, decision="reverted", kernel_blob=str(n)) for n, s in enumerate("5797"))
    one = made(
        rows,
        [Suggestion(number=1, title="larger blocks, BQ 512\x1b[2J", predicted_ms=0.5, modelled_ms=1.0, checked=True)],
        4,
        2,
    )
    text = text_within(one, 1500)
    assert "a turn takes about 7 s" in text
    assert (
        "1. larger blocks, BQ 512: 0.50000 ms, -50.0 %, values checked\n"
        "modelled and not faster: 4 edits\nnot modelled yet: 2" in text
    )
    for apart in (compare.TRADE_APART, compare.WAITING_APART, compare.BROAD_APART):
        assert f" from {apart * 100:g} % on" in text
    document = document_within(one, 1500)
    assert document["try"][0]["number"] == 1
    assert document["edits"] == {"no_faster": 4, "not_modelled": 2}
    assert document["budget"]["turn_seconds"] == 7


def test_bytes_that_failed_twice_are_one_try_and_a_baseline_again_is_no_repetition() -> None:
    rows = (
        row(id="a", decision="baseline", kernel_blob="x"),
        row(id="b", decision="baseline", kernel_blob="x"),
        row(id="c", decision="reverted", kernel_blob="y"),
        row(id="d", decision="reverted", kernel_blob="y", seal="another"),
    )
    one = made(rows)
    assert [each.id for each in one.reverted] == ["d"]
    assert one.twice == 0
