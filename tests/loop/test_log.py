"""Finding a row, and what is wrong with a history, on rows written as they are wanted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ratchet.loop import ledger, log
from ratchet.loop.history import History
from ratchet.loop.refs import EXPERIMENTS, ROWS
from ratchet.values import Row
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, kernel_text

NOW = datetime(2026, 11, 21, 3, 15, tzinfo=UTC)
BLANK = Row(**dict.fromkeys(ledger.COLUMNS, ""))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A ledger with rows ``a1`` (commit abcd1), ``a12`` (abcd2) and ``b`` (abcd1 again)."""
    for name, commit in (("a1", "abcd1"), ("a12", "abcd2"), ("b", "abcd1")):
        ledger.append(tmp_path / ledger.NAME, replace(BLANK, id=name, commit=commit))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "found"), [("a1", "a1"), ("a12", "a12"), ("b", "b"), ("abcd", "b"), ("abcd2", "a12"), ("abcd1", "b")]
)
def test_a_row_is_found_by_its_id_or_else_by_its_commit(root: Path, name: str, found: str) -> None:
    assert log.find(root, name).id == found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a", "'a' fits 2 rows, from a1 to a12: give more of the id"),
        ("abc", "no row has the id or commit 'abc'"),
        ("", "no row has the id or commit ''"),
        ("abcd12", "no row has the id or commit 'abcd12'"),
    ],
)
def test_what_fits_no_row_or_several_is_refused(root: Path, name: str, said: str) -> None:
    with pytest.raises(Refusal, match=said) as caught:
        log.find(root, name)
    assert caught.value.status is Status.NOT_FOUND


def test_the_last_id_is_the_one_that_sorts_last(root: Path) -> None:
    assert log.last_id(log.rows(root)) == "b"
    assert log.last_id(log.rows(root)[::-1]) == "b"
    assert log.last_id(()) == ""
    assert log.rows(root / "none") == ()


def test_experiments_that_began_a_day_ago_are_over(stage: Stage) -> None:
    now = datetime.now(UTC)
    for hours in (22, 26):
        name = ledger.new_id(now=now - timedelta(hours=hours))
        stage.git("update-ref", f"refs/ratchet/experiments/{name}", stage.head())
        assert log.experiments(stage.root) == ((name,) if hours > 24 else ())


@pytest.mark.parametrize(
    ("last", "name"),
    [
        ("", "20261121-031500-"),
        ("20261121-031459-ffff", "20261121-031500-"),
        ("20261121-031500-0000", "20261121-031501-"),
        ("20261121-031500-ffff", "20261121-031501-"),
        ("20261231-235959-ffff", "20270101-000000-"),
        ("20261121-031500-zzzz", "20261121-031501-"),
        ("99999999-999999-0000", "20261121-031500-"),
    ],
)
def test_an_id_follows_the_last_one(last: str, name: str) -> None:
    made = ledger.new_id(last, NOW)
    assert made.startswith(name)
    assert len(made) == len("20261121-031500-1a2b")
    assert int(made[-4:], 16) >= 0


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain é", "plain é"), ("a\\b", "a\\\\b"), ("\t\n\r", "\\t\\n\\r"),
        ("\x00\x1f\x7f\x9f", "\\x00\\x1f\\x7f\\x9f"),
        ("\u2028\ud800", "\\u2028\\ud800"), ('"a"', '\\x22a"'), ("\xa0", "\xa0"), ("", ""),
    ],
)  # fmt: skip
def test_text_as_the_ledger_writes_it(text: str, escaped: str) -> None:
    assert ledger.escape(text) == escaped
    assert ledger.unescape(escaped) == text


def lines(*rows: Row) -> bytes:
    data: bytes | None = None
    for row in rows:
        data = (data or b"") + ledger.addition(data, row).text.encode()
    return data or b""


TWO = lines(replace(BLANK, id="one"), replace(BLANK, id="two"))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "line 1 is ''"),
        (TWO.partition(b"\n")[2], "wanted the header"),
        (TWO.replace(b"score", b"points"), "wanted the header"),
        (b"\xef\xbb\xbf" + TWO, "wanted the header"),
        (TWO[:-1], "line 3 is cut off"),
        (b"\n\r", "line 2 has a carriage return"),
        (TWO.replace(b"one", b"one\r"), "line 2 has a carriage return"),
        (TWO.replace(b"two", b"tw\xff"), "line 3 is not UTF-8"),
        (TWO + b"\n", "line 4 was edited: it has 1 columns"),
        (TWO.replace(b"one", b"on\te"), f"line 2 was edited: it has {len(ledger.COLUMNS) + 1} columns"),
        (TWO.replace(b"one", b"eno"), "line 3 does not follow line 2"),
        (TWO.replace(b"two", b"\\x61"), "line 3 was edited: .* is not escaped as the ledger escapes text"),
        (TWO + TWO.splitlines(keepends=True)[2], "line 4 does not follow line 3"),
        (lines(replace(BLANK, id="one"), replace(BLANK, id="one")), "line 3 repeats the id one of line 2"),
    ],
)
def test_what_is_wrong_with_a_ledger_is_said_with_its_line(data: bytes, said: str) -> None:
    with pytest.raises(Refusal, match=said) as caught:
        ledger.parse(data)
    assert caught.value.status is Status.LEDGER_BROKEN
    assert [row.id for row in ledger.parse(TWO)] == ["one", "two"]


def test_a_row_in_git_that_says_another_thing_is_named(stage: Stage) -> None:
    stage.run("baseline")
    stage.write(kernel_text(1500.0))
    kept = stage.run("better").row
    assert log.verify(stage.root) == ()
    stage.git("update-ref", f"refs/ratchet/experiments/{kept.id}", f"{kept.commit}~1")
    (finding,) = log.verify(stage.root)
    assert finding.text == f"row {kept.id}: refs/ratchet/experiments/{kept.id} does not name its commit"
    stage.git("update-ref", f"{ROWS}{kept.id}", f"{ROWS}{stage.rows()[0].id}")
    assert f"row {kept.id} differs from the row that git holds" in {finding.text for finding in log.verify(stage.root)}
    stage.git("update-ref", "-d", f"{ROWS}{kept.id}")
    assert log.verify(stage.root) == (), "nothing is known to be otherwise"
    other = replace(kept, commit=stage.git("rev-parse", f"{kept.commit}~1"))
    data = stage.ledger.read_bytes().splitlines(keepends=True)
    stage.ledger.write_bytes(data[0] + data[1] + f"{ledger.format_row(other)}\n".encode())
    stage.git("update-ref", "-d", "refs/ratchet/tips/main")
    texts = [finding.text for finding in log.verify(stage.root)]
    assert any(f": kernel.py in commit {other.commit[:10]} is not the kernel that was judged" in text for text in texts)


def test_evidence_of_a_row_that_has_none_is_no_matter(stage: Stage) -> None:
    stage.run("baseline")
    assert log.verify(stage.root, evidence=lambda _id: "0123") == ()


def test_what_a_clone_does_not_have_is_told_apart_from_what_git_lost(stage: Stage) -> None:
    head, gone = stage.head(), "1" * 40
    blob, other = stage.git("rev-parse", "HEAD:kernel.py"), stage.git("rev-parse", "HEAD:other.txt")
    sound = replace(BLANK, commit=head, kernel="kernel.py", kernel_blob=blob)
    cases = {
        "sound": sound,
        "another": replace(sound, kernel_blob=other),
        "nowhere": replace(sound, kernel="none.py"),
        "no commit": replace(sound, commit=gone),
        "no kernel": replace(sound, kernel_blob=gone),
    }
    rows = [replace(row, id=str(number)) for number, row in enumerate(cases.values())]
    for row in rows:
        ledger.append(stage.ledger, row)
    wrong = [
        (True, f"row 1: kernel.py in commit {head[:10]} is not the kernel that was judged"),
        (True, f"row 2: none.py in commit {head[:10]} is not the kernel that was judged"),
    ]
    assert [(finding.broken, finding.text) for finding in log.verify(stage.root)] == [
        *wrong, (False, f"2 of 5 rows came with the clone, without their commits; to have them: `{log.FETCH}`"),
    ]  # fmt: skip
    history = History(stage.root)
    for row in stage.rows():
        blob = history.objects.store(ledger.format_row(row).encode())
        history.refs.point({ROWS + row.id: blob})
        if row.commit == head:
            history.refs.point({EXPERIMENTS + row.id: head})
    assert [(finding.broken, finding.text) for finding in log.verify(stage.root)] == [
        *wrong,
        (True, f"row 3: commit {gone} does not resolve"),
        (True, f"row 3: {EXPERIMENTS}3 does not name its commit"),
        (True, f"row 4: commit {head} does not resolve"),
    ]
