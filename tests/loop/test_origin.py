"""Who made a row: what the key outside the tree says of it, and what a forged one can do."""

import dataclasses
import os
import shutil
import stat
from pathlib import Path

import pytest

from ratchet.loop import ledger, log
from ratchet.loop.history import History
from ratchet.loop.refs import EXPERIMENTS, MACS, ROWS, TIPS
from ratchet.process import key
from ratchet.values import Decision
from ratchet.values.row import Origin
from ratchet.values.status import Status
from tests.loop.stage import Stage, kernel_text


@pytest.fixture
def other_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Goes to another machine's key, made when it is first wanted."""
    return lambda name="other": monkeypatch.setattr(key, "path", lambda: tmp_path / name / "key")


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch) -> object:
    """Takes the home folder away."""

    def nowhere() -> Path:
        raise key.NoKey("no home folder")

    return lambda: monkeypatch.setattr(key, "path", nowhere)


def forge(stage: Stage, **changed: str) -> None:
    """Appends a row as anyone can who may write in the repository: line, chain and refs are whole."""
    last = stage.rows()[-1]
    changed = {"id": ledger.new_id(last.id), **changed}
    row = ledger.append(stage.ledger, dataclasses.replace(last, **changed))
    history = History(stage.root)
    blob = history.objects.store(ledger.format_row(row).encode())
    history.refs.point({f"{ROWS}{row.id}": blob, f"{TIPS}main": blob, f"{EXPERIMENTS}{row.id}": row.commit})


def origins(stage: Stage) -> list[Origin]:
    return list(log.verify_origins(stage.root).by_id.values())


def test_rows_are_signed_and_the_key_is_the_users_alone(stage: Stage) -> None:
    stage.run("baseline")
    stage.write(kernel_text(1500.0))
    stage.run("better")
    assert origins(stage) == [Origin.HERE, Origin.HERE]
    assert log.verify(stage.root) == ()
    assert stat.S_IMODE(key.path().stat().st_mode) == 0o600
    assert not key.path().is_relative_to(stage.root)
    assert key.load().secret.hex() not in "".join(map(stage.git, ["for-each-ref", "log"]))


def test_a_forged_row_passes_the_chain_and_not_the_key(stage: Stage) -> None:
    stage.run("baseline")
    forge(stage, score="9000.0")
    assert log.verify(stage.root) == (), "the chain and the commits are whole"
    found = log.verify_origins(stage.root)
    assert list(found.by_id.values()) == [Origin.HERE, Origin.UNSIGNED]
    assert found.later_strangers == (stage.rows()[-1].id,)


def test_the_mac_of_another_row_is_a_forgery(stage: Stage) -> None:
    first = stage.run("baseline").row
    forge(stage, score="9000.0")
    forged = stage.rows()[-1]
    stage.git("update-ref", f"{MACS}{forged.id}", f"{MACS}{first.id}")
    (finding,) = log.verify(stage.root)
    assert finding.broken
    assert f"row {forged.id}: not from this machine's key" in finding.text


def test_rows_of_another_machine_are_counted_apart_and_are_no_error(stage: Stage, other_machine) -> None:
    stage.run("baseline")
    other_machine()
    stage.write(kernel_text(1500.0))
    stage.run("better, elsewhere")
    assert log.verify(stage.root) == ()
    found = log.verify_origins(stage.root)
    assert list(found.by_id.values()) == [Origin.ELSEWHERE, Origin.HERE, Origin.HERE]
    assert found.later_strangers == ()


def test_without_a_key_verify_says_so_and_everything_runs(stage: Stage, no_key) -> None:
    stage.run("baseline")
    no_key()
    stage.write(kernel_text(1500.0))
    assert stage.run("better").decision == Decision.KEPT
    assert len(stage.rows()) == 2, "without a key every row counts as HEAD's score"
    assert log.verify(stage.root) == ()
    found = log.verify_origins(stage.root)
    assert (found.no_key, found.by_id) == ("no home folder", {})
    assert stage.git("for-each-ref", "--format=%(refname)", MACS).count("\n") == 0, "only the first is signed"


def test_verify_makes_no_key(stage: Stage, other_machine) -> None:
    stage.run("baseline")
    other_machine()
    assert "No such file" in log.verify_origins(stage.root).no_key
    assert not key.path().exists()


def test_a_forged_score_of_head_does_not_lower_the_bar(stage: Stage) -> None:
    stage.run("baseline")
    forge(stage, score="1.0", reason="forged")
    stage.write(kernel_text(500.0))
    outcome = stage.run("worse than HEAD")
    assert outcome.decision == Decision.REVERTED
    assert outcome.incumbent is not None
    assert outcome.incumbent.score == "1000.0"


def test_without_an_own_row_head_is_judged_here(stage: Stage, other_machine) -> None:
    stage.run("baseline")
    other_machine()
    stage.write(kernel_text(500.0))
    outcome = stage.run("worse")
    assert outcome.baseline is not None
    assert outcome.decision == Decision.REVERTED
    assert stage.run("baseline").status is Status.NO_CHANGE


@pytest.mark.parametrize("wrong", ["too short", "not hex: " + "z" * 64, ""])
def test_a_damaged_key_is_named_and_not_replaced(stage: Stage, wrong: str) -> None:
    key.load()
    key.path().write_text(wrong)
    with pytest.raises(key.NoKey, match="hex digits"):
        key.load()
    assert key.path().read_text() == wrong
    assert stage.run("baseline").status is Status.PASS
    assert "hex digits" in log.verify_origins(stage.root).no_key


@pytest.mark.parametrize("make", ["readable by others", "a link", "a pipe"])
def test_a_key_that_is_not_the_users_alone_is_none(make: str) -> None:
    key.load()
    file = key.path()
    if make == "readable by others":
        file.chmod(0o644)
    else:
        file.rename(file.with_name("elsewhere"))
        os.mkfifo(file, 0o600) if make == "a pipe" else file.symlink_to("elsewhere")
    with pytest.raises(key.NoKey):
        key.load()


def test_two_that_make_a_key_at_once_have_the_same(tmp_path: Path) -> None:
    shutil.rmtree(key.path().parent, ignore_errors=True)
    read, write = os.pipe()
    children = []
    for _ in range(8):
        pid = os.fork()
        if not pid:
            try:
                os.write(write, key.load().secret.hex().encode() + b"\n")
            finally:
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    assert set(os.read(read, 1 << 12).decode().split()) == {key.load().secret.hex()}
    assert [file.name for file in key.path().parent.iterdir()] == ["key"]


def test_purposes_and_texts_do_not_run_into_each_other() -> None:
    own = key.load()
    macs = {own.mac("row", b"ab"), own.mac("row", b"a", b"b"), own.mac("ro", b"wab"), own.mac("row", b"ab", b"")}
    assert len(macs) == 4
    assert own.made(own.mac("row", b"ab"), "row", b"ab")
    assert not own.made("", "row", b"ab")
    assert repr(own.secret) not in repr(own)
