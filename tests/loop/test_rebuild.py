"""The ledger written anew from git: which rows come back, in which order, and what becomes of the file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from ratchet.loop import ledger, log
from ratchet.loop.history import History
from ratchet.loop.refs import ROWS, tip_ref
from ratchet.process.root import Root
from ratchet.values import Row
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage

BLANK = Row(**dict.fromkeys(ledger.COLUMNS, ""))
MAIN = tip_ref("refs/heads/main")


def following(name: str, before: str) -> str:
    """The line of a row that follows the line ``before``."""
    return ledger.format_row(replace(BLANK, id=name, previous=ledger.digest(before)))


A = following("a", ledger.HEADER)
B = following("b", A)
C = following("c", B)
FORK = following("fork", A)
"""Written where ``b`` was not known."""
STRAY = following("stray", "a line that git has lost")
NEXT = following("next", STRAY)
OTHER = following("other", ledger.HEADER)
LINES = {"a": A, "b": B, "c": C, "fork": FORK, "stray": STRAY, "next": NEXT, "other": OTHER}


def text(*names: str) -> bytes:
    """A ledger of these rows."""
    return "".join(f"{line}\n" for line in (ledger.HEADER, *(LINES[name] for name in names))).encode()


@dataclass(frozen=True, kw_only=True)
class Case:
    """What git and the folder hold before, and what is there afterwards. Rows are words of names."""

    head: str | None = None
    """The ledger that HEAD has, if any."""
    refs: str = ""
    tip: str | None = None
    file: str | None = None
    """The file before, if any."""
    rows: str
    left_out: str = ""
    tip_after: str | None = None


CASES = {
    "nothing is known": Case(rows=""),
    "refs up to the tip": Case(refs="a b c", tip="c", rows="a b c", tip_after="c"),
    "one row": Case(refs="a", tip="a", rows="a", tip_after="a"),
    "refs without a tip": Case(refs="c a b", rows="a b c"),
    "two may come next": Case(refs="a b c fork", rows="a"),
    "the tip says which comes next": Case(refs="a b c fork", tip="fork", rows="a fork", tip_after="fork"),
    "an older tip": Case(refs="a b c", tip="b", rows="a b", tip_after="b"),
    "HEAD's rows first": Case(head="a", refs="a b c", tip="c", rows="a b c", tip_after="c"),
    "HEAD's rows without a tip": Case(head="a", refs="b c", rows="a b c"),
    "HEAD's rows without a tip are followed by one": Case(head="a", refs="a b fork", rows="a"),
    "the tip is in HEAD": Case(head="a b c", refs="a b c fork", tip="b", rows="a b c", tip_after="b"),
    "the tip follows an older row of HEAD's": Case(
        head="a b", refs="a b fork", tip="fork", rows="a b", left_out="fork", tip_after="b"
    ),
    "a row between is gone": Case(refs="a c", tip="c", rows="", left_out="c"),
    "nothing leads to the tip": Case(
        head="a", refs="a stray next", tip="next", rows="a", left_out="stray next", tip_after="a"
    ),
    "nothing leads to the tip and HEAD has none": Case(
        refs="stray next", tip="next", file="next", rows="", left_out="stray next"
    ),
    "HEAD's ledger is empty": Case(head="", refs="stray", tip="stray", rows="", left_out="stray"),
    "a file that is whole": Case(refs="a b", tip="b", file="a b", rows="a b", tip_after="b"),
    "a file that was cut off": Case(refs="a b", tip="b", file="a", rows="a b", tip_after="b"),
    "a file with another row": Case(refs="a b", tip="b", file="a fork", rows="a b", tip_after="b"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_git_knows_is_what_the_ledger_holds(stage: Stage, name: str) -> None:
    case = CASES[name]
    history = History(stage.root)
    if case.head is not None:
        stage.ledger.write_bytes(text(*case.head.split()))
        stage.git("add", "results.tsv")
        stage.git("commit", "-q", "-m", "rows")
        stage.ledger.unlink()
    blobs = {row: history.objects.store(LINES[row].encode()) for row in {*case.refs.split(), case.tip} - {None}}
    history.refs.point({ROWS + row: blobs[row] for row in case.refs.split()})
    if case.tip:
        history.refs.point({MAIN: blobs[case.tip]})
    before = None if case.file is None else text(*case.file.split())
    if before is not None:
        stage.ledger.write_bytes(before)

    rebuilt = log.rebuild(stage.root)

    rows = case.rows.split()
    assert [row.id for row in log.rows(stage.root)] == rows
    assert (rebuilt.rows, rebuilt.from_head) == (len(rows), len((case.head or "").split()))
    assert rebuilt.left_out == tuple(case.left_out.split())
    assert rebuilt.notes == ()
    assert history.refs.tip("refs/heads/main") == (LINES[case.tip_after] if case.tip_after else None)
    assert stage.ledger.exists() == (bool(rows) or before is not None), "no file is made for no row"
    if before in (None, text(*rows)):
        assert rebuilt.replaced is None
    else:
        assert rebuilt.replaced is not None
        assert history.objects.blob(stage.git("rev-parse", rebuilt.replaced)) == before
    assert log.rebuild(stage.root).replaced is None, "it is whole"


def test_a_whole_ledger_is_not_written_again(stage: Stage) -> None:
    stage.ledger.write_bytes(text("a"))
    stage.git("update-ref", ROWS + "a", History(stage.root).objects.store(A.encode()))
    os.utime(stage.ledger, ns=(1, 1))
    log.rebuild(stage.root)
    assert stage.ledger.stat().st_mtime_ns == 1


def test_a_link_in_the_place_of_the_ledger_is_replaced_and_not_followed(stage: Stage) -> None:
    stage.git("update-ref", ROWS + "a", History(stage.root).objects.store(A.encode()))
    elsewhere = stage.root / "hlo_dumps"
    elsewhere.write_text("the user's")
    stage.ledger.symlink_to(elsewhere)
    assert log.rebuild(stage.root).replaced is None
    assert not stage.ledger.is_symlink()
    assert stage.ledger.read_bytes() == text("a")
    assert elsewhere.read_text() == "the user's"


def test_a_missing_ledger_is_noticed_by_whatever_knows_of_it(stage: Stage) -> None:
    """By the tip alone, and by HEAD alone."""
    history = History(stage.root)
    history.refs.point({MAIN: history.objects.store(A.encode())})
    (finding,) = log.verify(stage.root)
    assert finding.broken
    assert "results.tsv is missing, but git knows of rows" in finding.text
    history.refs.delete(MAIN)
    assert log.verify(stage.root) == ()
    stage.ledger.write_bytes(text("a"))
    stage.git("add", "results.tsv")
    stage.git("commit", "-q", "-m", "rows")
    stage.ledger.unlink()
    (finding,) = log.verify(stage.root)
    assert "results.tsv is missing, but git knows of rows" in finding.text


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("a fork", "line 3 differs from HEAD's"),
        ("a", "line 3 differs from HEAD's"),
        ("other", "line 2 differs from HEAD's"),
    ],
)
def test_the_first_line_that_differs_from_heads_is_named(stage: Stage, file: str, said: str) -> None:
    stage.ledger.write_bytes(text("a", "b"))
    stage.git("add", "results.tsv")
    stage.git("commit", "-q", "-m", "rows")
    stage.ledger.write_bytes(text(*file.split()))
    (finding,) = log.verify(stage.root)
    assert finding.broken
    assert f"results.tsv {said}: it was edited or removed" in finding.text


def test_what_cannot_be_verified_is_refused(stage: Stage) -> None:
    stage.git("checkout", "-q", "--detach")
    with pytest.raises(Refusal) as caught:
        log.verify(stage.root)
    assert caught.value.status is Status.DETACHED_HEAD


def test_a_ledger_is_not_rebuilt_while_a_run_is_at_work(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it waited for."""
    waits: list[float] = []

    @contextlib.contextmanager
    def held(_root: Root, _name: str, *, wait_s: float = 0.0) -> Iterator[None]:
        waits.append(wait_s)
        raise BlockingIOError
        yield

    monkeypatch.setattr(Root, "locked", held)
    with pytest.raises(Refusal, match="another experiment is running") as caught:
        log.rebuild(stage.root)
    assert caught.value.status is Status.BUSY
    assert waits == [0, 0]
