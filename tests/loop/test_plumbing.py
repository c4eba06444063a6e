"""Git as it is run: what a failure is to a user, and what a killed git leaves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratchet.loop import plumbing
from ratchet.loop.plumbing import Git, first_line
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage

PLENTY = 64 << 10


@pytest.mark.parametrize(
    ("free", "error", "status", "said"),
    [
        (PLENTY, "fatal: odd\n", Status.INFRASTRUCTURE, "git tag failed: fatal: odd"),
        (PLENTY, "", Status.INFRASTRUCTURE, "git tag failed: no message"),
        (PLENTY - 1, "fatal: odd", Status.NO_SPACE, "no space left for git tag"),
        (PLENTY, "write: No space left on device", Status.NO_SPACE, "no space left for git tag"),
        (PLENTY, "write: Disk quota exceeded", Status.NO_SPACE, "no space left for git tag"),
        (PLENTY, "open: Permission denied", Status.LEDGER_UNWRITABLE, "git tag cannot write: open: Permission denied"),
        (PLENTY, "insufficient permission denied\n", Status.LEDGER_UNWRITABLE, "git tag cannot write"),
        (PLENTY, "open: Read-only file system", Status.LEDGER_UNWRITABLE, "git tag cannot write"),
        (PLENTY, "open: Operation not permitted", Status.LEDGER_UNWRITABLE, "git tag cannot write"),
        (PLENTY - 1, "open: Permission denied", Status.NO_SPACE, "no space left"),
    ],
)
def test_why_git_failed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, free: int, error: str, status: Status, said: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    refusal = Git(stage.root).trouble("tag", error)
    assert refusal.status is status
    assert refusal.message.startswith(said)


@pytest.mark.parametrize(
    ("error", "line"), [("one\ntwo", "one"), ("\n  \ntwo\n", "two"), ("", "no message"), (" \n", "no message")]
)
def test_the_first_line_that_says_anything(error: str, line: str) -> None:
    assert first_line(error) == line


def answering(monkeypatch: pytest.MonkeyPatch, code: int, error: str) -> None:
    """Every git from now on ends like this."""
    monkeypatch.setattr("git.cmd.Git.execute", lambda *_args, **_options: (code, b"", error))


@pytest.mark.parametrize(("code", "clears"), [(-9, 1), (-1, 1), (0, 0), (1, 0)])
def test_only_a_git_that_was_killed_leaves_locks_to_clear(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, code: int, clears: int
) -> None:
    git, calls = Git(stage.root), []
    monkeypatch.setattr(plumbing, "clear", lambda **folders: calls.append(folders))
    answering(monkeypatch, code, "what git says")
    ended = f"it was ended by signal {-code}\n" if clears else ""
    assert git.run("tag") == (code, b"", f"{ended}what git says")
    folder = stage.root.resolve() / ".git"
    assert calls == [{"root": stage.root.resolve(), "common_dir": folder, "git_dir": folder}] * clears


def test_a_git_that_is_killed_as_the_repository_is_looked_for_is_a_refusal(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is known where its locks would be."""
    answering(monkeypatch, -9, "")
    with pytest.raises(Refusal, match="it was ended by signal 9") as caught:
        Git(stage.root)
    assert caught.value.status is Status.NOT_A_REPOSITORY


def test_git_runs_in_a_session_of_its_own_with_what_it_is_given(stage: Stage) -> None:
    git = Git(stage.root)
    fields = git.line("-c", "alias.stat=!cat /proc/self/stat", "stat").rpartition(")")[2].split()
    assert int(fields[3]) != os.getsid(0), "the terminal's Ctrl-C is not for it"
    assert git.output("stripspace", stdin=b"one\n\n\n\ntwo\n") == b"one\n\ntwo\n"
    assert git.run("stripspace") == (0, b"", ""), "nothing is read where nothing is given"
    index = stage.root / "hlo_dumps"
    git.output("read-tree", "--empty", index=index)
    assert git.output("ls-files", index=index) == b""
    assert git.output("ls-files").split() == [b".gitignore", b"kernel.py", b"other.txt"]
    with pytest.raises(Refusal, match="git no-such failed"):
        git.output("no-such")


def test_folders_of_a_worktree_and_of_its_repository(stage: Stage, tmp_path: Path) -> None:
    stage.git("worktree", "add", "-q", str(tmp_path / "linked"))
    git: Any = Git(tmp_path / "linked")
    folder = stage.root.resolve() / ".git"
    assert (git.common_dir.resolve(), git.git_dir) == (folder, folder / "worktrees" / "linked")
    assert (git.git_dir / "ratchet").is_dir()
