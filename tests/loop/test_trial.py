"""One judging: what the judge is given, what it leaves, and the problem lock before and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.loop import log
from ratchet.values import Decision
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, StageJudge, kernel_text


class Watching(StageJudge):
    """Notes where the kernel is that it is given, and what is beside it."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.seen: list[tuple[Path, list[str]]] = []

    def judge(self, kernel_path: Path, **options):  # type: ignore[no-untyped-def]
        self.seen.append((kernel_path, sorted(path.name for path in kernel_path.parent.iterdir())))
        return super().judge(kernel_path, **options)


def test_the_judge_is_given_a_copy_in_a_folder_of_its_own(stage: Stage) -> None:
    judge, said = Watching(stage), []
    stage.write(kernel_text(1500.0))
    outcome = stage.run("better", judge=judge, progress=said.append)
    assert [names for _, names in judge.seen] == [["kernel.py", "lease"]] * 2
    for path, _ in judge.seen:
        assert not path.is_relative_to(stage.root.resolve())
        assert not path.parent.exists()
    assert outcome.baseline is not None
    assert said == [
        "judging HEAD's kernel first: no row has its score under these conditions",
        f"{outcome.baseline.id}: judging HEAD's kernel",
        f"{outcome.row.id}: judging the candidate",
    ]


@pytest.mark.parametrize("ending", ["refusal", "interrupted"])
def test_what_judging_left_goes_when_it_does_not_end(stage: Stage, ending: str) -> None:
    """The folder, and a problem lock that was frozen meanwhile."""
    stage.freezes = True

    def during() -> None:
        if ending == "refusal":
            raise Refusal(Status.INFRASTRUCTURE, "the judge broke")

    stage.during = during
    stage.write(kernel_text(1500.0) if ending == "refusal" else 'STATUS = "INTERRUPTED"\n')
    stage.git("commit", "-qam", "a kernel")
    with pytest.raises(Refusal) as caught:
        stage.run("baseline")
    assert caught.value.status is (Status.INFRASTRUCTURE if ending == "refusal" else Status.INTERRUPTED)
    assert not stage.lock.exists()
    assert not stage.ledger.exists()


def test_a_lock_that_was_there_before_comes_back_when_judging_does_not_end(stage: Stage) -> None:
    stage.lock.write_text("the user's own\n")

    def during() -> None:
        stage.lock.write_text("another\n")
        raise Refusal(Status.INFRASTRUCTURE, "the judge broke")

    stage.during = during
    with pytest.raises(Refusal):
        stage.run("baseline")
    assert stage.lock.read_text() == "the user's own\n"


def test_a_problem_that_is_frozen_while_the_branch_moves_is_taken_back(stage: Stage) -> None:
    stage.freezes = True
    judged = stage.head()

    def during() -> None:
        stage.git("commit", "-q", "--allow-empty", "-m", "meanwhile")

    stage.during = during
    outcome = stage.run("baseline")
    head = stage.head()
    assert (outcome.status, outcome.decision) == (Status.BRANCH_MOVED, Decision.JUDGED)
    where = f"HEAD moved to main at {head[:10]} while this was judged, so nothing was kept or reverted; "
    assert outcome.reason.startswith(where)
    assert not stage.lock.exists()
    (row,) = stage.rows()
    assert (row.status, row.parent) == ("PASS", judged)
    assert log.verify(stage.root) == ()


def test_a_problem_whose_row_is_written_stays_for_the_run_that_finishes_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.freezes = True

    def refused(*_: object, **__: object) -> None:
        raise Refusal(Status.INFRASTRUCTURE, "the index is gone")

    with monkeypatch.context() as patch:
        patch.setattr("ratchet.loop.worktree.WorkTree.sync_index", refused)
        with pytest.raises(Refusal, match="the next run finishes what it says"):
            stage.run("baseline")
    assert stage.lock.exists()
    assert stage.run("baseline").status is Status.NO_CHANGE
    assert stage.git("show", "HEAD:kernel.py.lock.json") == stage.lock.read_text().removesuffix("\n")
