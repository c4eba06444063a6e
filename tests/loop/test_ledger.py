"""The ledger file: what it holds, what breaks it, what repairs it."""

import csv
import dataclasses
import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.loop import ledger, log
from ratchet.loop.history import History
from ratchet.loop.workspace import locked
from ratchet.values import Decision, Row
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, kernel_text

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60) | st.text('\\\t\n\r"x u0\x85\u2028', max_size=12)
ROWS = st.builds(Row, **{column: ANY_TEXT for column in ledger.COLUMNS})


def row(**changed: str) -> Row:
    return dataclasses.replace(Row(**{column: column for column in ledger.COLUMNS}), **changed)


@given(ANY_TEXT)
def test_escaping_is_reversible_and_stays_on_one_line(text: str) -> None:
    escaped = ledger.escape(text)
    assert ledger.unescape(escaped) == text
    assert "\t" not in escaped
    assert len(f"{escaped}x".splitlines()) == 1
    assert escaped.isprintable() or not any(ord(character) < 32 for character in escaped)


@given(ANY_TEXT)
def test_only_what_the_ledger_writes_is_read(text: str) -> None:
    try:
        plain = ledger.unescape(text)
    except ValueError:
        return
    assert ledger.escape(plain) == text


@given(st.lists(ROWS, max_size=4, unique_by=lambda row: row.id))
def test_rows_survive_the_file(rows: list[Row]) -> None:
    data: bytes | None = None
    for one in rows:
        data = (data or b"") + ledger.addition(data, one).text.encode()
    found = ledger.parse(data) if data else ()
    assert [dataclasses.replace(one, previous="") for one in found] == [
        dataclasses.replace(one, previous="") for one in rows
    ]
    assert data is None or len(data.split(b"\n")) == len(rows) + 2


@given(st.lists(ROWS, min_size=1, max_size=3, unique_by=lambda row: row.id))
def test_readers_of_csv_see_the_same_columns(rows: list[Row]) -> None:
    data = b""
    for one in rows:
        data += ledger.addition(data or None, one).text.encode()
    cells = list(csv.reader(data.decode().split("\n")[:-1], delimiter="\t"))
    assert [list(map(ledger.unescape, line[:-1])) for line in cells[1:] if '"' not in "".join(line)] == [
        [getattr(one, column) for column in ledger.COLUMNS[:-1]] for one in rows if not _quoted(one)
    ]
    assert {len(line) for line in cells} == {len(ledger.COLUMNS)}


def _quoted(one: Row) -> bool:
    return any('"' in ledger.escape(getattr(one, column)) for column in ledger.COLUMNS[:-1])


def test_the_first_nine_columns_are_the_published_ones() -> None:
    published = "commit score status median_ms util_pct tflops regime bw_util_pct note"
    assert ledger.HEADER.split("\t")[:9] == published.split()


def test_a_long_note_is_cut_with_an_ellipsis() -> None:
    assert ledger.note("x" * 300) == "x" * 300
    assert ledger.note("x" * 10_000) == "x" * 299 + "…"


def edit(stage: Stage, change: Callable[[list[bytes]], list[bytes]]) -> None:
    stage.ledger.write_bytes(b"".join(change(stage.ledger.read_bytes().splitlines(keepends=True))))


FAULTS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "a row edited": (
        lambda lines: [lines[0], lines[1].replace(b"1000.0", b"9000.0"), *lines[2:]],
        "line 3 does not follow",
    ),
    "the last row edited": (lambda lines: [*lines[:-1], lines[-1].replace(b"5.0", b"9.0")], "was edited"),
    "a row removed": (lambda lines: [lines[0], *lines[2:]], "line 2 does not follow"),
    "rows swapped": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "line 2 does not follow"),
    "cut off in a row": (lambda lines: [*lines[:-1], lines[-1][:40]], "is cut off"),
    "CRLF": (lambda lines: [line.replace(b"\n", b"\r\n") for line in lines], "line 1 has a carriage return"),
    "not UTF-8": (
        lambda lines: [*lines[:2], lines[2].replace(b"worse", b"w\xffrse"), *lines[3:]],
        "line 3 is not UTF-8",
    ),
}


@pytest.fixture(scope="module")
def three_rows(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A repository with three rows, to be copied."""
    stage = Stage.new(tmp_path_factory.mktemp("three") / "repository")
    stage.run("baseline")
    for score in (4.0, 5.0):
        stage.write(kernel_text(score))
        stage.run("worse")
    return stage


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_ledger_is_refused_and_rebuilt(three_rows: Stage, tmp_path: Path, fault: str) -> None:
    stage = Stage(root=tmp_path / "repository")
    shutil.copytree(three_rows.root, stage.root)
    whole = stage.ledger.read_bytes()
    change, reported = FAULTS[fault]
    edit(stage, change)
    broken = stage.ledger.read_bytes()
    stage.write(kernel_text(5000.0))
    with pytest.raises(Refusal) as refusal:
        stage.run("better")
    assert refusal.value.status is Status.LEDGER_BROKEN
    assert reported in refusal.value.message
    assert "rebuild" in refusal.value.message
    assert stage.ledger.read_bytes() == broken
    assert stage.read() == kernel_text(5000.0)
    (finding,) = log.verify(stage.root)
    assert finding.broken
    rebuilt = log.rebuild(stage.root)
    assert stage.ledger.read_bytes() == whole
    assert (rebuilt.rows, rebuilt.from_head, rebuilt.left_out) == (3, 0, ())
    assert rebuilt.replaced is not None
    assert stage.git("cat-file", "-s", rebuilt.replaced) == str(len(broken)), "what was replaced is kept"
    assert stage.run("better").decision == Decision.KEPT
    assert log.verify(stage.root) == ()


LOST: dict[str, Callable[[Stage], object]] = {
    "stash": lambda stage: stage.git("stash", "-q"),
    "checkout": lambda stage: stage.git("checkout", "-q", "HEAD", "--", "results.tsv"),
    "checkout of an old one": lambda stage: stage.git("checkout", "-q", "HEAD~1", "--", "results.tsv"),
    "reset --hard": lambda stage: stage.git("reset", "-q", "--hard"),
    "reset --hard to before": lambda stage: stage.git("reset", "-q", "--hard", "HEAD~1"),
    "cut at a line": lambda stage: edit(stage, lambda lines: lines[:-1]),
    "emptied": lambda stage: stage.ledger.write_bytes(b""),
    "removed": lambda stage: stage.ledger.unlink(),
}
"""What takes rows from the file, though git has them."""


@pytest.mark.parametrize("way", LOST)
def test_rows_that_were_lost_are_back_with_the_next_experiment(stage: Stage, way: str) -> None:
    stage.run("baseline")
    for score in (1500.0, 1600.0, 1400.0):
        stage.write(kernel_text(score))
        stage.run(f"{score}")
    whole = stage.ledger.read_bytes()
    LOST[way](stage)
    assert stage.ledger.read_bytes() != whole if stage.ledger.exists() else way == "removed"
    stage.write(kernel_text(5000.0))
    said: list[str] = []
    assert stage.run("better", progress=said.append).decision == Decision.KEPT
    assert stage.ledger.read_bytes().startswith(whole)
    lost = {"checkout of an old one": 3, "reset --hard to before": 3, "cut at a line": 1, "emptied": 4, "removed": 4}
    count = lost.get(way, 2)
    (line,) = [one for one in said if "had lost" in one]
    assert line.startswith(f"results.tsv had lost {count} row{'s' * (count > 1)}, ")
    assert ("git stash pop" in line) is (way == "stash")
    assert log.verify(stage.root) == ()


def test_who_only_reads_puts_rows_back_too_but_not_while_a_run_appends(stage: Stage) -> None:
    stage.run("baseline")
    whole = stage.ledger.read_bytes()
    stage.ledger.unlink()
    with locked(History(stage.root), message="a run", wait_s=0, progress=print):
        assert log.put_back_alone(stage.root) == ""
        assert not stage.ledger.exists()
    assert log.put_back_alone(stage.root).startswith("results.tsv had lost 1 row, ")
    assert stage.ledger.read_bytes() == whole
    assert log.put_back_alone(stage.root) == ""
    stage.git("checkout", "-q", "--detach")
    stage.ledger.unlink()
    assert log.put_back_alone(stage.root) == "", "on no branch, so nobody knows whose rows"


def test_a_stash_that_is_popped_again_loses_nothing(stage: Stage) -> None:
    stage.run("baseline")
    stage.write(kernel_text(1500.0))
    stage.run("kept")
    stage.write(kernel_text(1400.0))
    stage.run("reverted")
    stage.write(kernel_text(1700.0))
    stage.git("stash", "-q")
    log.put_back_alone(stage.root)
    whole = stage.ledger.read_bytes()
    stage.git("checkout", "-q", "results.tsv")
    stage.git("stash", "pop", "-q")
    assert stage.read() == kernel_text(1700.0)
    assert stage.ledger.read_bytes() == whole


def test_a_missing_ledger_is_rebuilt_from_git_alone(stage: Stage) -> None:
    stage.run("baseline")
    for score in (1500.0, 1400.0):
        stage.write(kernel_text(score))
        stage.run(f"try {score}")
    whole = stage.ledger.read_bytes()
    stage.ledger.unlink()
    assert log.rebuild(stage.root).from_head == 1
    assert stage.ledger.read_bytes() == whole
    assert log.rebuild(stage.root).replaced is None, "a whole ledger is left as it is"


def test_rebuilding_elsewhere_from_fetched_refs(stage: Stage, tmp_path: Path) -> None:
    stage.run("baseline")
    stage.write(kernel_text(1500.0))
    stage.run("better")
    for refs in ("refs/ratchet/*:refs/ratchet/*", "refs/ratchet/[re]*/*:refs/ratchet/*"):
        clone = stage.clone(tmp_path / f"clone{len(refs)}")
        wanted = (
            [refs]
            if "[" not in refs
            else [f"refs/ratchet/{name}/*:refs/ratchet/{name}/*" for name in ("rows", "experiments")]
        )
        clone.git("fetch", "-q", "origin", *wanted)
        assert log.rebuild(clone.root).rows == 2
        assert clone.ledger.read_bytes() == stage.ledger.read_bytes()


def test_heads_ledger_may_only_grow(stage: Stage) -> None:
    stage.run("baseline")
    stage.write(kernel_text(1500.0))
    stage.run("better")
    stage.git("update-ref", "-d", "refs/ratchet/tips/main")
    stage.ledger.unlink()
    ledger.append(stage.ledger, row(id="20200101-000000-0000", note="another's"))
    stage.write(kernel_text(9.0))
    with pytest.raises(Refusal, match="line 2 differs from HEAD's") as refusal:
        stage.run("again")
    assert refusal.value.status is Status.LEDGER_BROKEN


def test_going_back_in_history_leaves_no_dead_end(stage: Stage) -> None:
    stage.run("baseline")
    for score in (1500.0, 1600.0):
        stage.write(kernel_text(score))
        stage.run("better")
    stage.git("reset", "-q", "--hard", "HEAD~2")
    stage.ledger.unlink(missing_ok=True)
    other = ledger.append(stage.ledger, row(id="20200101-000000-0000", note="someone else's history"))
    stage.git("add", "results.tsv")
    stage.git("commit", "-q", "-m", "another history")
    stage.write(kernel_text(1500.0))
    with pytest.raises(Refusal, match="rebuild"):
        stage.run("again")
    rebuilt = log.rebuild(stage.root)
    assert len(rebuilt.left_out) == 3
    assert stage.rows() == (other,)
    assert stage.run("again").decision == Decision.KEPT


def test_a_broken_ledger_in_head_is_named(stage: Stage) -> None:
    stage.ledger.write_text("commit\tscore\nabc\t1\n")
    stage.git("add", "results.tsv")
    stage.git("commit", "-q", "-m", "an old ledger")
    with pytest.raises(Refusal, match="HEAD's own ledger"):
        log.rebuild(stage.root)


@pytest.fixture
def immutable(stage: Stage) -> object:
    """Makes a path unwritable, even for root."""
    made: list[Path] = []

    def make(path: Path) -> None:
        if os.geteuid():
            path.chmod(0o555)
        elif subprocess.run(["chattr", "+i", str(path)], check=False, capture_output=True).returncode:
            pytest.skip("root, on a file system without the immutable attribute")
        made.append(path)

    yield make
    for path in made:
        path.chmod(0o755) if os.geteuid() else subprocess.run(["chattr", "-i", str(path)], check=True)


def test_a_read_only_ledger_is_refused_before_judging(stage: Stage, immutable: Callable[[Path], None]) -> None:
    stage.run("baseline")
    stage.write(kernel_text(1500.0))
    immutable(stage.ledger)
    with pytest.raises(Refusal, match=r"results\.tsv cannot be written") as refusal:
        stage.run("better")
    assert refusal.value.status is Status.LEDGER_UNWRITABLE
    assert len(stage.judged) == 1
    assert stage.read() == kernel_text(1500.0)


def test_a_folder_where_no_ledger_can_be_made(stage: Stage, immutable: Callable[[Path], None]) -> None:
    immutable(stage.root)
    with pytest.raises(Refusal) as refusal:
        stage.run("baseline")
    assert refusal.value.status is Status.LEDGER_UNWRITABLE
    assert stage.judged == []


def test_a_ledger_that_becomes_read_only_while_judging(stage: Stage, immutable: Callable[[Path], None]) -> None:
    stage.run("baseline")
    stage.write(kernel_text(900.0))
    stage.during = lambda: immutable(stage.ledger)
    with pytest.raises(Refusal) as refusal:
        stage.run("worse")
    assert refusal.value.status is Status.LEDGER_UNWRITABLE
    assert len(stage.rows()) == 1
    assert stage.read() == kernel_text(900.0), "no row, so nothing is enacted"
    assert not (stage.root / ".git" / "ratchet" / "pending.json").exists()


def test_a_ledger_that_is_no_file(stage: Stage) -> None:
    stage.ledger.symlink_to("other.txt")
    with pytest.raises(Refusal, match="symbolic link") as refusal:
        stage.run("baseline")
    assert refusal.value.status in (Status.LEDGER_BROKEN, Status.DIRTY)


def fill(folder: Path, leave_bytes: int = 0) -> None:
    with open(folder / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    os.truncate(folder / "ballast", max(0, (folder / "ballast").stat().st_size - leave_bytes))


@pytest.mark.parametrize("small_disk", ["3m"], indirect=True)
def test_a_full_disk_is_refused_before_judging(small_disk: Path) -> None:
    stage = Stage.new(small_disk / "repository")
    fill(small_disk, leave_bytes=64 << 10)
    stage.git("status")
    with pytest.raises(Refusal, match="free some") as refusal:
        stage.run("baseline")
    assert refusal.value.status is Status.NO_SPACE
    assert stage.judged == []


@pytest.mark.parametrize("small_disk", ["3m"], indirect=True)
@pytest.mark.parametrize("left", range(0, 40961, 4096))
def test_a_disk_that_fills_up_while_judging(small_disk: Path, left: int) -> None:
    stage = Stage.new(small_disk / "repository")
    stage.run("baseline")
    stage.write(kernel_text(900.0))
    whole = stage.ledger.read_bytes()
    stage.during = lambda: fill(small_disk, leave_bytes=left)
    try:
        assert stage.run("worse").decision == Decision.REVERTED, "there was room enough"
    except Refusal as refusal:
        if refusal.status is not Status.NO_SPACE:
            raise
    assert stage.ledger.read_bytes() == whole or stage.rows()[-1].decision == "reverted", "a whole row, or none"
    (small_disk / "ballast").unlink()
    stage.during = lambda: None
    stage.run("worse")
    assert [one.decision for one in stage.rows()] == ["baseline", "reverted"]
    assert log.verify(stage.root) == ()


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_a_row_that_does_not_reach_the_disk_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Whether a part of it is written, or all of it and not flushed."""
    path, write = tmp_path / ledger.NAME, os.write
    ledger.append(path, row(id="1"))
    whole = path.read_bytes()

    def refused(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, (lambda to, data: write(to, data[:10])) if fails == "write" else refused)
        with pytest.raises(Refusal) as refusal:
            ledger.append(path, row(id="2"))
    assert refusal.value.status is (Status.NO_SPACE if fails == "write" else Status.LEDGER_UNWRITABLE)
    assert path.read_bytes() == whole
    assert ledger.append(path, row(id="2")).id == "2"


def test_a_torn_row_is_completed_and_anything_else_is_not(tmp_path: Path) -> None:
    path = tmp_path / ledger.NAME
    ledger.append(path, row(id="1"))
    before = path.read_bytes()
    added = ledger.addition(before, row(id="2"))
    for torn in range(0, len(added.text), 7):
        path.write_bytes(before + added.text.encode()[:torn])
        ledger.write(path, added)
        ledger.write(path, added)
        assert path.read_bytes() == before + added.text.encode()
    path.write_bytes(before + b"something else")
    with pytest.raises(Refusal):
        ledger.write(path, added)


def test_verify_says_whose_evidence_changed(stage: Stage) -> None:
    stage.evidence = lambda _id: "0123"
    row = stage.run("baseline").row
    for there in ("0123", ""):  # as it was; pruned
        assert log.verify(stage.root, evidence=lambda _id, there=there: there) == ()
    (finding,) = log.verify(stage.root, evidence={row.id: "4567"}.__getitem__)
    assert not finding.broken
    assert f"row {row.id}: the evidence on the disk is not what the judge left" in finding.text
