"""Lines of experiments on branches of their own: beside each other, and made ready for review."""

from pathlib import Path

import pytest

from ratchet.loop import branches, log
from ratchet.loop.branches import finalize
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, kernel_text

LINES = ".ratchet/lines"


@pytest.fixture
def begun(stage: Stage) -> Stage:
    """A repository with a baseline, and one that was reverted since: a row that no commit holds."""
    (stage.root / ".gitignore").write_text("hlo_dumps/\n.ratchet/\n")
    stage.git("commit", "-qam", "rules")
    stage.run("baseline")
    tried(stage, 900.0)
    return stage


def tried(stage: Stage, *scores: float) -> None:
    for score in scores:
        stage.write(kernel_text(score))
        stage.run(f"experiment: {score}\n\nWhy: so.")


def line(stage: Stage, name: str) -> Stage:
    return Stage(root=branches.line_of(stage.root, name, folder=stage.root / LINES))


def test_a_line_of_its_own_leaves_the_others_alone(begun: Stage) -> None:
    before = begun.head(), begun.ledger.read_bytes(), begun.read(), begun.status()
    wide = line(begun, "wide")
    assert wide.ledger.read_bytes() == before[1], "a new line has the rows that are here"
    tried(wide, 1300.0, 1250.0)
    assert (begun.head(), begun.ledger.read_bytes(), begun.read(), begun.status()) == before
    assert line(begun, "wide").root == wide.root
    assert len(line(begun, "wide").rows()) == 4
    tried(begun, 1100.0)
    assert log.verify(begun.root) == log.verify(wide.root) == ()
    here, there = branches.lines(begun.root)
    assert [(one.branch, one.is_head, len(one.rows), one.since) for one in (here, there)] == [
        ("main", True, 3, 0),
        ("wide", False, 4, 2),
    ]
    assert there.fork == begun.rows()[1]
    assert [one.branch for one in branches.lines(wide.root)] == ["wide", "main"]


def test_a_line_whose_folder_is_gone_goes_on(begun: Stage) -> None:
    wide = line(begun, "wide/er 1's".replace(" ", "-"))
    tried(wide, 1300.0, 1250.0)
    rows = wide.rows()
    begun.git("worktree", "remove", "--force", str(wide.root))
    again = line(begun, "wide/er-1's")
    assert again.rows() == rows
    assert again.read() == kernel_text(1300.0)
    assert log.verify(again.root) == ()


@pytest.mark.parametrize("name", ["-x", "a b", "a..b", "HEAD", "@{-1}", "a\nb"])
def test_what_is_no_branch(begun: Stage, name: str) -> None:
    with pytest.raises(Refusal, match="no name for a branch") as caught:
        line(begun, name)
    assert caught.value.status is Status.USAGE


def test_heads_own_line_is_here_and_anothers_is_refused(begun: Stage, tmp_path: Path) -> None:
    assert line(begun, "main").root == begun.root
    begun.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    with pytest.raises(Refusal, match="other") as caught:
        line(begun, "other")
    assert caught.value.status is Status.BUSY


def test_finalize_has_the_kept_experiments_alone(begun: Stage) -> None:
    tried(begun, 1100.0, 1050.0)
    (begun.root / "other.txt").write_text("by hand\n")
    begun.git("commit", "-qm", "by hand", "--", "other.txt")
    tried(begun, 1200.0)
    done = finalize(begun.root)
    assert (done.branch, len(done.commits), done.left_out, done.differs) == ("review/main", 2, 1, ())
    assert begun.git("rev-parse", "review/main") == done.commits[-1]
    assert begun.git("log", "--format=%B", "-1", done.commits[0]) == "experiment: 1100.0\n\nWhy: so."
    assert begun.git("diff", "--name-only", done.base, "review/main").split() == ["kernel.py"]
    assert begun.git("show", "review/main:kernel.py") == kernel_text(1200.0).strip()
    dates = [begun.git("log", "-1", "--format=%an %ad %cd", one) for one in (done.commits[-1], begun.head())]
    assert dates[0] == dates[1]
    assert finalize(begun.root) == done, "asked again it makes the same commits"
    tried(begun, 1300.0)
    longer = finalize(begun.root)
    assert longer.commits[:2] == done.commits
    assert begun.git("rev-parse", "review/main") == longer.commits[-1]


def test_finalize_in_a_clone_begins_at_the_upstream(begun: Stage, tmp_path: Path) -> None:
    tried(begun, 1100.0)
    begun.git("clone", "-q", "--bare", ".", str(tmp_path / "upstream.git"))
    begun.git("remote", "add", "upstream", str(tmp_path / "upstream.git"))
    begun.git("fetch", "-q", "upstream")
    begun.git("branch", "-q", "--set-upstream-to=upstream/main")
    base = begun.head()
    with pytest.raises(Refusal, match="nothing was kept on main since its upstream") as caught:
        finalize(begun.root)
    assert caught.value.status is Status.NO_CHANGE
    tried(begun, 1200.0)
    done = finalize(begun.root)
    assert (done.base, len(done.commits)) == (base, 1)
    begun.git("switch", "-q", "-c", "without-upstream")
    begun.git("branch", "-q", "-D", "review/main")
    done = finalize(begun.root)
    assert (done.base, len(done.commits)) == (base, 1), "the nearest branch of a remote, where there is no upstream"


def test_finalize_of_a_line_begins_where_it_parted(begun: Stage) -> None:
    tried(begun, 1100.0)
    base = begun.head()
    wide = line(begun, "wide")
    tried(wide, 1300.0)
    tried(begun, 1150.0)
    done = finalize(begun.root, branch="wide", name="for-review")
    assert (done.base, done.branch, len(done.commits)) == (base, "for-review", 1)
    assert len(finalize(begun.root, branch="wide", base=f"{base}^", name="all").commits) == 2


def test_what_finalize_refuses(begun: Stage) -> None:
    for words, status in (
        ({}, Status.NO_CHANGE),
        ({"branch": "none"}, Status.NOT_FOUND),
        ({"branch": "--all"}, Status.NOT_FOUND),
        ({"branch": "a b"}, Status.NOT_FOUND),
        ({"name": "refs/heads/main"}, Status.USAGE),
        ({"name": "x" * 300}, Status.USAGE),
        ({"base": "--all"}, Status.NOT_FOUND),
        ({"name": "main"}, Status.USAGE),
        ({"name": "a b"}, Status.USAGE),
    ):
        with pytest.raises(Refusal, match=r"wanted|kept|branch|commit") as caught:
            finalize(begun.root, **words)
        assert caught.value.status is status, words
    tried(begun, 1100.0)
    begun.git("branch", "review/main", "HEAD")
    with pytest.raises(Refusal, match="other commits") as caught:
        finalize(begun.root)
    assert caught.value.status is Status.BRANCH_MOVED


@pytest.mark.parametrize("what", ["folder", "link"])
def test_what_is_no_work_tree_stays(begun: Stage, tmp_path: Path, what: str) -> None:
    """A folder of the user's in the place of a line's, or a link to one."""
    place, mine = begun.root / LINES / "wide", tmp_path / "mine"
    place.parent.mkdir(parents=True, exist_ok=True)
    (place if what == "folder" else mine).mkdir()
    if what == "link":
        place.symlink_to(mine)
    (place / "notes").write_text("mine")
    with pytest.raises(Refusal, match="no work tree of this repository, and stays") as caught:
        branches.line_of(begun.root, "wide", folder=begun.root / LINES)
    assert caught.value.status is Status.BUSY
    assert (place / "notes").read_text() == "mine"
