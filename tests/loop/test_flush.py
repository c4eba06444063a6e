"""A row and a journal are on the disk, entry of the folder included, before the next thing is done."""

import os
from pathlib import Path

import pytest

from ratchet.loop import ledger, log
from ratchet.loop.history import History
from ratchet.values import Row
from tests.loop.stage import Stage

ROW = Row(**dict.fromkeys(ledger.COLUMNS, "1"))


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Inode and size of everything that is flushed, in order."""
    calls: list[tuple[int, int]] = []
    flush = os.fsync

    def fsync(descriptor: int) -> None:
        flush(descriptor)
        state = os.fstat(descriptor)
        calls.append((state.st_ino, state.st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    return calls


def test_an_appended_row_is_flushed_whole_and_then_its_folder(tmp_path: Path, flushed: list[tuple[int, int]]) -> None:
    path = tmp_path / ledger.NAME
    ledger.append(path, ROW)
    file, folder = path.stat(), tmp_path.stat()
    assert (file.st_ino, file.st_size) in flushed
    assert flushed[-1][0] == folder.st_ino
    before = len(flushed)
    ledger.append(path, ROW.__class__(**{**ROW.__dict__, "id": "2"}))
    assert (path.stat().st_ino, path.stat().st_size) in flushed[before:]


def test_a_row_that_is_there_already_is_flushed_again(tmp_path: Path, flushed: list[tuple[int, int]]) -> None:
    """It may have been written by a run that was killed before it could flush."""
    path = tmp_path / ledger.NAME
    added = ledger.addition(None, ROW)
    path.write_text(added.text)
    ledger.write(path, added)
    assert (path.stat().st_ino, path.stat().st_size) in flushed


def test_the_journal_is_flushed_as_it_comes_and_as_it_goes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, flush = stage.root / ".git" / "ratchet", os.fsync
    seen: list[tuple[str, bool]] = []

    def fsync(descriptor: int) -> None:
        flush(descriptor)
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if name.startswith(str(folder)):
            seen.append((os.path.relpath(name, folder)[:5], (folder / "pending.json").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    stage.run("baseline")
    assert seen == [(".new-", False), (".", True), (".", False)]


def test_a_ledger_that_is_written_anew_is_flushed_whole_and_then_its_folder(
    stage: Stage, flushed: list[tuple[int, int]]
) -> None:
    line = ledger.addition(None, ROW).line
    stage.git("update-ref", f"refs/ratchet/rows/{ROW.id}", History(stage.root).objects.store(line.encode()))
    log.rebuild(stage.root)
    file = stage.ledger.stat()
    assert file.st_size > len(line)
    assert (file.st_ino, file.st_size) in flushed
    assert flushed[-1][0] == stage.root.stat().st_ino


def test_a_problem_that_was_frozen_is_flushed_before_git_knows_of_it(
    stage: Stage, flushed: list[tuple[int, int]]
) -> None:
    stage.freezes = True
    stage.run("baseline")
    file = stage.lock.stat()
    assert (file.st_ino, file.st_size) in flushed
