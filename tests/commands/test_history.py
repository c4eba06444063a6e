"""``ratchet log``, ``top``, ``show`` and ``status`` over a real repository: once, as JSON, as it happens, unread."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.text import Text

from ratchet.commands import history, options
from ratchet.exam.judge.secret import FOLDER
from ratchet.loop.history import History
from ratchet.loop.ledger import NAME
from ratchet.loop.workspace import locked
from ratchet.process.root import Root
from ratchet.search.progress import Progress, Searching, lock_of
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, kernel_text

NOTES = [
    "first, whole: " + "a long story " * 12 + "ends here",
    "quotes \" ' <b>&amp; $(x) ü 高い",
    "\x1b[2Jhidden\x1b]0;t\x07",
]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    stage = Stage.new(tmp_path_factory.mktemp("repository") / "with a space")
    for number, note in enumerate(NOTES, start=1):
        stage.write(improved(number))
        stage.run(note)
    return stage


def improved(number: int) -> str:
    """A kernel that is the faster, the larger ``number``."""
    return kernel_text(1000.0 + 100 * number, f"TIMES = {2.0 / (1 + number)}, 0.0\n")


@pytest.fixture
def empty(tmp_path: Path) -> Stage:
    return Stage.new(tmp_path / "repository")


def run(capsys: pytest.CaptureFixture[str], stage: Stage, *words: str) -> str:
    given = options.ratchet(words)
    match words[0]:
        case "log":
            code = history.log_command(given, root=stage.root, only=None)
        case "top":
            code = history.top_command(given, root=stage.root, only=None)
        case "status":
            code = history.status_command(given, root=stage.root, kernel=stage.root / "kernel.py")
        case _:
            code = history.show_command(given, root=stage.root)
    assert code == Status.PASS.exit_code
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def no_width_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.mark.parametrize("width", [40, 80, 140])
def test_what_is_piped_fits_the_width_that_is_given(stage, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for words in (("log",), ("top",), ("status",)):
        assert max(map(len, run(capsys, stage, *words).splitlines())) <= width


def test_a_pipe_gets_whole_notes_and_no_control_characters(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, stage, "log")
    assert "ends here\n" in text
    assert NOTES[1] in text
    assert "hidden\n" in text
    assert "\x1b" not in text
    assert text.count("modelled latency of kernel.py") == 1


def test_a_terminal_gets_lines_that_fit(stage, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for words in (("log",), ("top",), ("status",), ("show", stage.rows()[-1].id)):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        text = Text.from_ansi(run(capsys, stage, *words)).plain
        fits = [line for line in text.split("\n") if cell_len(line) <= 40]
        assert len(fits) >= text.count("\n") - (words[0] in ("status", "show")) * 9, words  # hashes are never cut
        assert stage.rows()[-1].id in text


def test_json_of_each(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(run(capsys, stage, "log", "--json"))["rows"]
    assert [row["id"] for row in rows] == [row.id for row in stage.rows()]
    assert [row["decision"] for row in rows] == ["baseline", "kept", "kept", "kept"]
    assert rows[1]["note"] == NOTES[0]
    assert rows[1]["times_faster"] == pytest.approx(2.0)
    best = json.loads(run(capsys, stage, "top", "--json", "--most", "2"))["top"]
    assert [row["id"] for row in best] == [rows[1]["id"], rows[2]["id"]]
    one = json.loads(run(capsys, stage, "show", rows[2]["id"], "--json"))
    assert (one["id"], one["against"], one["blame"]) == (rows[2]["id"], rows[1]["id"], None)
    state = json.loads(run(capsys, stage, "status", "--json"))
    assert (state["branch"], state["edited"], state["running"]) == ("refs/heads/main", [], None)
    assert state["series"][0]["times_faster"] == pytest.approx(4.0)
    assert state["series"][0]["incumbent"]["id"] == rows[-1]["id"]


def test_an_empty_ledger(empty: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, empty, "log") == "The ledger has no such rows yet.\n"
    assert json.loads(run(capsys, empty, "log", "--json")) == {"rows": []}
    assert run(capsys, empty, "top").startswith("No experiment was kept")
    assert "no experiment yet" in run(capsys, empty, "status")
    assert json.loads(run(capsys, empty, "status", "--json"))["last"] is None
    with pytest.raises(Refusal, match="no row has the id") as refusal:
        run(capsys, empty, "show", "nothing")
    assert refusal.value.status is Status.NOT_FOUND


@pytest.mark.parametrize("command", ["log", "top"])
def test_rows_of_a_file_that_is_nowhere_are_refused(stage: Stage, command: str) -> None:
    asked = getattr(history, f"{command}_command")
    for given in ([], ["--json"]):
        with pytest.raises(Refusal, match=r"nosuch\.py is no file.*it has rows of kernel\.py") as refusal:
            asked(options.ratchet([command, "nosuch.py", *given]), root=stage.root, only=stage.root / "nosuch.py")
        assert refusal.value.status is Status.NOT_FOUND


def test_rows_of_a_file_that_was_removed_are_shown(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    text = stage.read()
    (stage.root / "kernel.py").unlink()
    history.log_command(options.ratchet(["log", "kernel.py"]), root=stage.root, only=stage.root / "kernel.py")
    stage.write(text)
    assert "baseline" in capsys.readouterr().out


def test_a_broken_ledger_is_refused_with_its_line(empty: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    empty.run("baseline")
    empty.ledger.write_text(empty.ledger.read_text() + "not\ta row\n")
    for words in (("log",), ("top", "--json"), ("status",), ("show", "x")):
        with pytest.raises(Refusal, match=r"results\.tsv line 3 was edited") as refusal:
            run(capsys, empty, *words)
        assert refusal.value.status is Status.LEDGER_BROKEN


def test_status_says_what_is_edited_and_what_runs(empty: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    empty.run("baseline")
    empty.write(improved(1))
    with locked(History(empty.root), message="an idea", wait_s=0, progress=print):
        text = run(capsys, empty, "status")
    assert "edited      kernel.py: `" in text
    assert "running     an experiment: an idea" in text
    assert "running" not in run(capsys, empty, "status")


def test_status_knows_a_search_between_two_trials(empty: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    now = Searching(kernel="kernel.py", how="grid", of=6, began_ms=2.0)
    (empty.root / FOLDER / "search").mkdir(parents=True)  # as a study is opened
    Progress(root=empty.root, study="s", now=now)
    with Root(empty.root).locked(lock_of("s")):
        assert "searching   search kernel.py · grid · 0 of 6\n" in run(capsys, empty, "status")
        assert json.loads(run(capsys, empty, "status", "--json"))["searching"][0]["of"] == 6
    assert "searching" not in run(capsys, empty, "status")


def test_a_row_of_a_path_elsewhere_is_not_read(empty, capsys, tmp_path):
    assert not history._is_file(empty.root, "../secret")
    assert not history._is_file(empty.root, str(tmp_path))
    assert history._is_file(empty.root, "kernel.py")


def watched(capsys, monkeypatch, stage, *words):
    """What is printed while an experiment runs, and then the user interrupts."""
    done: list[float] = []

    def waits(seconds: float) -> None:
        done.append(seconds)
        if len(done) > 1:
            raise KeyboardInterrupt
        stage.write(improved(1))
        stage.run("while watched")

    monkeypatch.setattr(history.time, "sleep", waits)
    return run(capsys, stage, *words, "--watch").split("\n")


def test_a_watched_log_prints_new_rows_alone(empty, capsys, monkeypatch):
    empty.run("baseline")
    lines = watched(capsys, monkeypatch, empty, "log")
    assert sum(line.endswith("PASS    baseline") for line in lines) == 1
    assert lines[-2].endswith("while watched")
    assert "2.00x  -50.0 %" in lines[-2]


def test_watched_json_is_a_document_a_line(empty, capsys, monkeypatch):
    empty.run("baseline")
    first, second, end = watched(capsys, monkeypatch, empty, "status", "--json")
    assert (json.loads(first)["experiments"], json.loads(second)["experiments"], end) == (1, 2, "")


def test_a_watched_terminal_is_drawn_anew_and_never_taller_than_it_is(empty, capsys, monkeypatch):
    empty.run("baseline")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("LINES", "6")
    monkeypatch.setenv("COLUMNS", "120")
    text = "\n".join(watched(capsys, monkeypatch, empty, "log"))
    _, first, second = text.split("\x1b[H\x1b[2J\x1b[3J")
    assert max(first.count("\n"), second.count("\n")) <= 6
    assert "while watched" in second


def test_nobody_is_written_to_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(history.time, "sleep", lambda _: os.close(reader))
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        seen = list(history.changes(tmp_path / NAME))
    monkeypatch.undo()
    assert len(seen) == 1
