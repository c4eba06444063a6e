"""A candidate that comes as bytes is in the kernel file only while it is judged."""

from pathlib import Path

import pytest

from ratchet.loop import placed, state
from ratchet.loop.experiment import Idea
from ratchet.loop.history import History
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, kernel_text

HEADS = kernel_text(1000.0)


def idea(score: float, **others: object) -> Idea:
    return Idea(message="from elsewhere", text=kernel_text(score).encode(), **others)  # type: ignore[arg-type]


@pytest.fixture
def judged(stage: Stage) -> Stage:
    stage.run("baseline")
    return stage


def mark(stage: Stage) -> Path:
    return stage.root / ".git" / "ratchet" / "placed.json"


@pytest.mark.parametrize(("score", "decision"), [(1500.0, "kept"), (900.0, "reverted")])
def test_it_is_judged_as_if_it_were_in_the_file(judged: Stage, score: float, decision: str) -> None:
    outcome = judged.run(idea=idea(score))
    assert outcome.decision == decision
    assert judged.judged[-1] == kernel_text(score)
    assert judged.read() == (kernel_text(score) if decision == "kept" else HEADS)
    assert [row.decision for row in judged.rows()] == ["baseline", decision]
    assert not mark(judged).exists()
    assert judged.status() == [" M results.tsv" if decision == "kept" else "?? results.tsv"]


def test_the_file_is_heads_again_where_judging_fails(judged: Stage) -> None:
    def fails() -> None:
        raise KeyboardInterrupt

    judged.during = fails
    with pytest.raises(Refusal, match="interrupted"):
        judged.run(idea=idea(1500.0))
    assert judged.read() == HEADS
    assert not mark(judged).exists()


def test_an_edit_of_the_users_is_neither_judged_nor_lost(judged: Stage) -> None:
    judged.write(kernel_text(7.0))
    with pytest.raises(Refusal, match=r"kernel\.py differs from HEAD's") as caught:
        judged.run(idea=idea(1500.0))
    assert caught.value.status is Status.DIRTY
    assert judged.read() == kernel_text(7.0)


@pytest.mark.parametrize("left", [1500.0, 7.0])
def test_what_a_killed_run_placed_goes_and_what_the_user_wrote_stays(judged: Stage, left: float) -> None:
    blob = History(judged.root).objects.store(kernel_text(1500.0).encode())
    judged.leave(state.PLACED, {"kernel": "kernel.py", "blob": blob})
    judged.write(kernel_text(left))
    said: list[str] = []
    outcome = judged.run("an idea", progress=said.append)
    if left == 1500.0:
        assert outcome.status is Status.NO_CHANGE
        assert "kernel.py held a candidate of a run that was cut off: HEAD's is back" in said
        assert judged.read() == HEADS
    else:
        assert outcome.row.decision == "reverted"
        assert judged.judged[-1] == kernel_text(7.0)
    assert not mark(judged).exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", "null"])
def test_a_mark_that_no_run_left_is_set_aside(judged: Stage, text: str) -> None:
    mark(judged).write_text(text)
    assert judged.run("an idea").status is Status.NO_CHANGE
    assert not mark(judged).exists()


def test_candidates_may_be_beside_the_kernel(judged: Stage) -> None:
    (judged.root / "a.py").write_text(kernel_text(1500.0))
    judged.git("add", "a.py")
    with pytest.raises(Refusal, match=r"a\.py"):
        judged.run(idea=idea(1500.0))
    assert judged.run(idea=idea(1500.0, beside=("a.py",))).decision == "kept"


def test_a_candidate_of_a_run_is_told_from_an_edit(judged: Stage) -> None:
    seen: list[str] = []
    judged.during = lambda: seen.append(placed.candidate(History(judged.root)))
    judged.run(idea=idea(1500.0))
    assert (seen, placed.candidate(History(judged.root))) == (["kernel.py"], "")
    judged.during = lambda: (judged.write(kernel_text(7.0)), seen.append(placed.candidate(History(judged.root))))
    judged.run(idea=idea(1600.0))
    assert seen[1:] == [""], "somebody edited it meanwhile"


def test_what_head_has_is_read_after_an_earlier_run_was_finished(judged: Stage) -> None:
    kernel, text = placed.committed(judged.root, Path("kernel.py"), wait_s=0, progress=print)
    assert (kernel, text.decode()) == ("kernel.py", HEADS)
    judged.write(kernel_text(7.0))
    with pytest.raises(Refusal, match="differs from HEAD's") as caught:
        placed.committed(judged.root, Path("kernel.py"), wait_s=0, progress=print)
    assert caught.value.status is Status.DIRTY
