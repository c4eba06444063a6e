"""A journal that is damaged is refused by name, whatever is wrong with it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from ratchet.loop import journal, ledger, log, state
from ratchet.loop.history import History
from ratchet.loop.journal import Plan
from ratchet.values import Row
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage

ROW = Row(**dict.fromkeys(ledger.COLUMNS, "1"))
PLAN = Plan(branch="refs/heads/main", old="0" * 40, new="1" * 40, kernel="k.py", judged="2" * 40, lock="k.py.lock.json")
LOCK = "kernel.py.lock.json"
SOUND: dict[str, Any] = {
    "id": "1",
    "plan": dataclasses.asdict(PLAN),
    "added": dataclasses.asdict(ledger.addition(None, ROW)),
}


def unfinished(stage: Stage, document: object) -> str | None:
    stage.leave(state.PENDING, document)
    return journal.unfinished(History(stage.root))


def test_a_sound_journal_is_read(stage: Stage) -> None:
    assert unfinished(stage, SOUND) == "1"


@pytest.mark.parametrize(
    "document",
    [
        [],
        {**SOUND, "id": None},
        {**SOUND, "id": "2"},
        {**SOUND, "plan": {**SOUND["plan"], "branch": None}},
        {**SOUND, "plan": {**SOUND["plan"], "move": "yes"}},
        {**SOUND, "plan": {**SOUND["plan"], "more": 1}},
        {**SOUND, "added": {**SOUND["added"], "size_bytes": {}}},
        {**SOUND, "added": {**SOUND["added"], "text": "no row"}},
        {"plan": SOUND["plan"], "added": SOUND["added"]},
    ],
    ids=lambda document: f"{document!r:.60}",
)
def test_a_damaged_journal_is_refused(stage: Stage, document: object) -> None:
    with pytest.raises(Refusal, match=r"the journal .* is unreadable") as caught:
        unfinished(stage, document)
    assert caught.value.status is Status.LEDGER_BROKEN


# --- what a decision does to files and branch ---


def recorded(stage: Stage, **plan: Any) -> journal.Enacted:
    """A row whose plan is that nothing else changes, except for ``plan``."""
    history, head = History(stage.root), stage.head()
    blob = stage.git("rev-parse", "HEAD:kernel.py")
    given = {"old": head, "new": head, "kernel": "kernel.py", "judged": blob, "lock": LOCK, **plan}
    row = dataclasses.replace(ROW, id="20261121-031500-1a2b", commit=head)
    return journal.record(history, row, Plan(branch="refs/heads/main", **given))


def store(stage: Stage, text: str) -> str:
    return History(stage.root).objects.store(text.encode())


def test_a_plan_that_changes_nothing_leaves_everything(stage: Stage) -> None:
    stage.write("edited")
    stage.git("add", "kernel.py")
    done = recorded(stage)
    assert (done.moved, done.notes, done.row.id) == (False, (), "20261121-031500-1a2b")
    assert stage.status() == ["M  kernel.py", "?? results.tsv"]
    assert [row.id for row in stage.rows()] == [done.row.id]
    assert journal.unfinished(History(stage.root)) is None
    assert journal.recover(History(stage.root)) == ()


def test_what_was_judged_goes_back_to_what_head_has(stage: Stage) -> None:
    stage.write("judged")
    stage.git("add", "kernel.py")
    (stage.root / LOCK).write_text("new")
    done = recorded(
        stage, judged=store(stage, "judged"), lock_now=store(stage, "new"), lock_back=store(stage, "old"),
        restore_kernel=True, restore_lock=True,
    )  # fmt: skip
    assert done.notes == ()
    assert stage.read() == "SCORE = 1000.0\n"
    assert (stage.root / LOCK).read_text() == "old"
    assert stage.status() == ["?? kernel.py.lock.json", "?? results.tsv"]


def test_a_lock_goes_back_alone(stage: Stage) -> None:
    stage.write("judged")
    stage.git("add", "kernel.py")
    (stage.root / LOCK).write_text("new")
    assert recorded(stage, judged=store(stage, "judged"), lock_now=store(stage, "new"), restore_lock=True).notes == ()
    assert not (stage.root / LOCK).exists()
    assert stage.status() == ["M  kernel.py", "?? results.tsv"], "the kernel stays as it was staged"


@pytest.mark.parametrize(
    ("plan", "notes"),
    [
        ({"judged": "0" * 40, "restore_kernel": True}, ["kernel.py was changed while it was judged"]),
        (
            {"kernel": "none.py", "lock": "none.py.lock.json", "restore_kernel": True},
            ["none.py is not in HEAD, so there is nothing to go back to"],
        ),
        ({"lock_now": "0" * 40, "restore_lock": True}, ["kernel.py.lock.json was changed while the kernel was judged"]),
        (
            {"judged": "0" * 40, "lock_now": "0" * 40, "restore_kernel": True, "restore_lock": True},
            [
                "kernel.py was changed while it was judged",
                "kernel.py.lock.json was changed while the kernel was judged",
            ],
        ),
        ({"old": "0" * 40, "restore_kernel": True}, ["the branch has moved since: kernel.py was left as it is"]),
    ],
)
def test_what_is_somebody_elses_by_now_stays_and_is_said(stage: Stage, plan: dict[str, Any], notes: list[str]) -> None:
    stage.write("edited")
    (stage.root / LOCK).write_text("edited")
    done = recorded(stage, **plan)
    assert [note.startswith(said) for note, said in zip(done.notes, notes, strict=True)] == [True] * len(notes)
    assert (stage.read(), (stage.root / LOCK).read_text()) == ("edited", "edited")


@pytest.mark.parametrize("further", [False, True])
def test_a_branch_moves_to_the_commit_with_the_kernel(stage: Stage, further: bool) -> None:
    """Or is there already and beyond: then the index is the user's own business."""
    old = stage.head()
    stage.write("kept")
    stage.git("commit", "-qam", "kept")
    new = stage.head()
    if further:
        stage.git("commit", "-q", "--allow-empty", "-m", "further")
    else:
        stage.git("reset", "-q", "--soft", old)
        stage.git("reset", "-q")
    done = recorded(stage, old=old, new=new, judged=stage.git("rev-parse", f"{new}:kernel.py"), move=True)
    assert (done.moved, done.notes) == (False, ())
    assert stage.git("rev-parse", "HEAD~1" if further else "HEAD") == new
    assert stage.status() == ["?? results.tsv"]


def test_a_branch_that_went_elsewhere_makes_a_correction(stage: Stage) -> None:
    old, tree = stage.head(), stage.git("rev-parse", "HEAD^{tree}")
    new = stage.git("commit-tree", tree, "-p", old, "-m", "judged")
    stage.git("commit", "-q", "--allow-empty", "-m", "elsewhere")
    head = stage.head()
    done = recorded(stage, old=old, new=new, move=True)
    assert done.moved
    assert stage.head() == head
    first, last = stage.rows()
    assert done.row == last
    assert (last.decision, last.commit) == ("judged", first.commit)
    assert last.id > first.id
    assert f"corrects row {first.id}: the branch had moved from {old[:10]}" in last.reason


@pytest.mark.parametrize(
    ("spoil", "left"),
    [(lambda stage: stage.ledger.write_text("no ledger\n"), False), (lambda stage: None, True)],
    ids=["before anything is written", "after the row is written"],
)
def test_a_record_that_fails_says_what_is_left(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Stage], None], left: bool
) -> None:
    spoil(stage)

    def refused(*_: object, **__: object) -> None:
        raise Refusal(Status.INFRASTRUCTURE, "no ref")

    with monkeypatch.context() as patch:
        patch.setattr("ratchet.loop.refs.Refs.point", refused)
        with pytest.raises(Refusal) as caught:
            recorded(stage)
    history = History(stage.root)
    assert (journal.unfinished(history) is not None) == left
    if not left:
        assert caught.value.status is Status.LEDGER_BROKEN
        return
    said = "no ref; the row 20261121-031500-1a2b is written, and the next run finishes what it says"
    assert (caught.value.status, caught.value.message) == (Status.INFRASTRUCTURE, said)
    (note,) = journal.recover(history)
    assert note.startswith("finished experiment 20261121-031500-1a2b, which was cut off: 1, 1")
    assert journal.unfinished(history) is None
    assert len(stage.rows()) == 1


def test_what_was_cut_off_is_finished_on_its_own_branch(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and asked for; where the branch is gone, git keeps the row."""

    def refused(*_: object, **__: object) -> None:
        raise Refusal(Status.INFRASTRUCTURE, "no ref")

    with monkeypatch.context() as patch:
        patch.setattr("ratchet.loop.refs.Refs.point", refused)
        with pytest.raises(Refusal, match="no ref"):
            recorded(stage)
    history, name = History(stage.root), "20261121-031500-1a2b"
    findings = [(finding.broken, finding.text) for finding in log.verify(stage.root)]
    assert (False, f"experiment {name} was cut off: the next run finishes it") in findings
    stage.git("checkout", "-q", "-b", "side")
    with pytest.raises(Refusal, match=f"experiment {name} on branch main was cut off: `git switch main`") as caught:
        journal.recover(history)
    assert caught.value.status is Status.OPERATION_UNDER_WAY
    assert journal.unfinished(history) == name
    stage.git("branch", "-q", "-D", "main")
    stage.ledger.unlink()
    assert journal.recover(history) == (
        f"experiment {name} was cut off and its branch is gone; its row is in refs/ratchet/rows/{name}",
    )
    assert stage.git("cat-file", "-t", f"refs/ratchet/rows/{name}") == "blob"
    assert journal.unfinished(history) is None
    assert not stage.ledger.exists()
