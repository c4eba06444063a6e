"""What somebody else left for the next run: nothing of it is done, it is said, and the run goes on."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.loop import journal, ledger, log, state
from ratchet.loop.history import History
from ratchet.process import key
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, kernel_text


@pytest.fixture
def judged(stage: Stage) -> Stage:
    stage.run("baseline")
    return stage


def decision(stage: Stage, **plan: Any) -> dict[str, Any]:
    """A journal that is whole in all but who wrote it: its plan writes a file."""
    history, head = History(stage.root), stage.head()
    evil = history.objects.store(b"evil")
    data = stage.ledger.read_bytes()
    row = dataclasses.replace(stage.rows()[-1], id="20991231-235959-0001", decision="kept", score="9000.0")
    usual = {
        "branch": "refs/heads/main", "old": head, "new": head, "kernel": "kernel.py", "judged": "0" * 40,
        "lock": "kernel.py.lock.json", "lock_now": None, "lock_back": evil,
        "move": False, "restore_kernel": False, "restore_lock": True,
    }  # fmt: skip
    return {"id": row.id, "plan": usual | plan, "added": dataclasses.asdict(ledger.addition(data, row)), "mac": ""}


def unsigned(stage: Stage, record: object) -> bytes:
    return json.dumps(record).encode()


def without_mac(stage: Stage, record: object) -> bytes:
    return b"\n" + json.dumps(record).encode()


def with_another_key(stage: Stage, record: object) -> bytes:
    body = json.dumps(record).encode()
    other = key.Key(secret=b"x" * 32)
    return other.mac("state", state.PENDING.encode(), body).encode() + b"\n" + body


def of_another_name(stage: Stage, record: object) -> bytes:
    stage.leave(state.PLACED, record)
    text = stage.root / ".git" / state.PLACED
    data = text.read_bytes()
    text.unlink()
    return data


def edited(stage: Stage, record: object) -> bytes:
    stage.leave(state.PENDING, record)
    return (stage.root / ".git" / state.PENDING).read_bytes().replace(b"refs/heads/main", b"refs/heads/mein")


FORGED: tuple[Callable[[Stage, object], bytes], ...] = (
    unsigned, without_mac, with_another_key, of_another_name, edited,
)  # fmt: skip


@pytest.mark.parametrize("made", FORGED, ids=lambda made: made.__name__)
def test_nothing_of_a_forged_decision_is_done(judged: Stage, made: Callable[[Stage, object], bytes]) -> None:
    forged = made(judged, decision(judged))
    (judged.root / ".git" / state.PENDING).write_bytes(forged)
    assert journal.unfinished(History(judged.root)) is None
    assert state.PENDING in log.verify(judged.root)[0].text
    said: list[str] = []
    judged.write(kernel_text(1500.0))
    assert judged.run("better", progress=said.append).decision == "kept"
    assert ".git/ratchet/pending.json was not written by a run here" in said[0]
    assert "remove it" in said[0]
    assert [row.decision for row in judged.rows()] == ["baseline", "kept"]
    assert not judged.lock.exists()
    (aside,) = (judged.root / ".git" / "ratchet").glob("refused-*.json")
    assert aside.read_bytes() == forged
    (finding,) = log.verify(judged.root)
    assert not finding.broken
    assert aside.name in finding.text


def test_a_decision_of_before_is_not_enacted_again(judged: Stage) -> None:
    """Signed, and copied while it was there: by now the ledger is another."""
    decided = decision(judged, restore_lock=False)
    judged.write(kernel_text(1500.0))
    judged.run("better")
    rows, head = judged.ledger.read_bytes(), judged.head()
    judged.leave(state.PENDING, decided)
    said: list[str] = []
    assert judged.run("again", progress=said.append).status is Status.NO_CHANGE
    assert "pending.json is of another results.tsv than this: nothing of it was done" in said[0]
    assert (judged.ledger.read_bytes(), judged.head()) == (rows, head)


@pytest.mark.parametrize("name", [state.PENDING, state.JOINED, state.PLACED])
@pytest.mark.parametrize("what", ["link", "pipe", "folder", "large", "deep"])
def test_what_is_no_file_of_ours_does_not_keep_the_next_run_from_judging(
    judged: Stage, tmp_path: Path, name: str, what: str
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    path = judged.root / ".git" / name
    if what == "link":
        path.symlink_to(mine)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "large":
        with path.open("wb") as file:
            file.truncate((64 << 20) + 1)
    else:
        path.write_text("\n" + "[" * 100_000)
    assert judged.run("again").status is Status.NO_CHANGE
    assert not os.path.lexists(path)
    assert mine.read_text() == "mine"


OUTSIDE = ("/tmp/written-outside", "../outside", "a/../../outside", ".git/hooks/post-commit", ".GIT/config")


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("key_is_there", [True, False])
def test_a_plan_names_files_of_the_work_tree_alone(
    judged: Stage, monkeypatch: pytest.MonkeyPatch, path: str, key_is_there: bool
) -> None:
    """Whoever wrote it: where this machine has no key, none of these files is signed."""
    if not key_is_there:
        monkeypatch.setattr(key, "known", lambda: None)
    for plan in ({"lock": path}, {"lock": f"{path}.lock.json", "kernel": path}):
        judged.leave(state.PENDING, decision(judged, **plan))
        with pytest.raises(Refusal):
            judged.run("again")
        (judged.root / ".git" / state.PENDING).unlink()
        assert not Path(judged.root, path).exists() or path == ".GIT/config"
        assert not Path(judged.root, f"{path}.lock.json").exists()


def test_a_merge_that_was_not_begun_here_is_not_enacted(judged: Stage) -> None:
    head, blob = judged.head(), History(judged.root).objects.store(b"evil")
    joining = {"branch": "refs/heads/main", "old": head, "new": head, "before": "", "after": blob, "tip": blob}
    (judged.root / ".git" / state.JOINED).write_text(json.dumps({**joining, "files": ["kernel.py"]}))
    rows = judged.ledger.read_bytes()
    said: list[str] = []
    assert judged.run("again", progress=said.append).status is Status.NO_CHANGE
    assert "joined.json was not written by a run here" in said[0]
    assert judged.ledger.read_bytes() == rows


def test_git_of_another_folder_is_not_followed(judged: Stage, tmp_path: Path) -> None:
    (judged.root / ".git").rename(tmp_path / "git")
    (judged.root / ".git").symlink_to(tmp_path / "git")
    with pytest.raises(Refusal, match="symbolic link") as caught:
        judged.run("again")
    assert caught.value.status is Status.NOT_A_REPOSITORY


@pytest.mark.parametrize("name", ["ratchet", "ratchet.lock"])
def test_a_link_in_the_git_folder_leads_nowhere(judged: Stage, tmp_path: Path, name: str) -> None:
    mine = tmp_path / "mine"
    path = judged.root / ".git" / name
    if name == "ratchet":
        shutil.rmtree(path)
        mine.mkdir()
    else:
        path.unlink()
        mine.write_text("mine")
    path.symlink_to(mine)
    with pytest.raises(Refusal, match="symbolic link"):
        judged.run("again")
    assert mine.read_text() == "mine" if mine.is_file() else not list(mine.iterdir())


@pytest.mark.parametrize("name", ["results.tsv", ".git/ratchet.lock"])
def test_a_hard_link_to_a_file_of_the_users_is_not_written(judged: Stage, tmp_path: Path, name: str) -> None:
    path, mine = judged.root / name, tmp_path / "mine"
    path.rename(mine)
    before = mine.read_bytes()
    os.link(mine, path)
    judged.write(kernel_text(1500.0))
    with pytest.raises(Refusal, match="hard link"):
        judged.run("better")
    assert mine.read_bytes() == before


LINKS = ("refs/ratchet", "refs/heads", "logs", "logs/HEAD", "logs/refs/heads/main", "objects", "index", "packed-refs")


@pytest.mark.parametrize("name", [*LINKS, "objects/info", "refs", "FETCH_HEAD"])
def test_git_writes_through_no_link(judged: Stage, tmp_path: Path, name: str) -> None:
    """It would append its log to a file of the user's, and make refs and objects in the user's folders."""
    path, mine = judged.root / ".git" / name, tmp_path / "mine"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.rename(mine)
    else:
        mine.write_text("")
    path.symlink_to(mine)

    def seen() -> dict[str, bytes]:
        files = [mine] if mine.is_file() else sorted(one for one in mine.rglob("*") if one.is_file())
        return {str(one): one.read_bytes() for one in files}

    before = seen()
    judged.write(kernel_text(1500.0))
    with pytest.raises(Refusal, match="is a symbolic link, and git would write where it leads"):
        judged.run("better")
    assert seen() == before


@pytest.mark.parametrize("key_name", ["filter.evil.clean", "filter.evil.smudge", "filter.evil.process"])
@pytest.mark.parametrize("where", ["config", "an included file"])
def test_no_filter_of_the_repositorys_runs(judged: Stage, tmp_path: Path, key_name: str, where: str) -> None:
    program, ran = tmp_path / "program", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    file = judged.root / ".git" / ("config" if where == "config" else "more")
    judged.git("config", "--file", str(file), key_name, str(program))
    judged.git("config", "--file", str(file), "filter.evil.required", "true")
    if where != "config":
        judged.git("config", "include.path", "more")
    (judged.root / ".git" / "info").mkdir(exist_ok=True)
    (judged.root / ".git" / "info" / "attributes").write_text("*.py filter=evil\n")
    for score in (1500.0, 900.0):
        judged.write(kernel_text(score))
        judged.run("an idea")
    assert [row.decision for row in judged.rows()] == ["baseline", "kept", "reverted"]
    assert not ran.exists()


def test_no_object_is_fetched_by_a_program_that_the_repository_names(judged: Stage, tmp_path: Path) -> None:
    program, ran = tmp_path / "program", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {ran}\nexit 1\n")
    program.chmod(0o755)
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "evil",
        "remote.evil.promisor": "true",
        "remote.evil.url": str(judged.root),
        "remote.evil.uploadpack": str(program),
    }.items():
        judged.git("config", name, value)
    with pytest.raises(Refusal):
        History(judged.root).objects.blob("1" * 40)
    assert not ran.exists()
