"""Two clones that both experimented: their ledgers become one, by a rule that ``verify`` knows."""

import dataclasses
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.commands.branches import merged
from ratchet.loop import ledger, log
from ratchet.loop.history import History
from ratchet.loop.merge import Merged
from ratchet.loop.trial import Outcome
from ratchet.process import key
from ratchet.values import Decision
from ratchet.values.status import Refusal, Status
from tests.loop.stage import CONDITIONS, Stage, StageJudge, kernel_text


@pytest.fixture
def pair(stage: Stage, tmp_path: Path) -> tuple[Stage, Stage]:
    """Two clones of one repository with a baseline; ours has kept 1100, theirs 1300 and then failed once."""
    stage.run("baseline")
    other = copy(stage, tmp_path / "theirs")
    tried(stage, 1100.0, 900.0)
    tried(other, 1300.0, 1200.0)
    return stage, other


def copy(stage: Stage, root: Path) -> Stage:
    shutil.copytree(stage.root, root, symlinks=True)
    return Stage(root=root)


def tried(stage: Stage, *scores: float) -> None:
    for score in scores:
        stage.write(kernel_text(score))
        stage.run(f"experiment: {score}")


def merge(stage: Stage, source: object, branch: str = "") -> tuple[Merged, tuple[Outcome, ...]]:
    judge = StageJudge(stage)
    return merged(str(source), branch=branch, root=stage.root, judge=judge, wait_s=0, say=lambda _line: None)


def ids(stage: Stage) -> list[str]:
    return [row.id for row in stage.rows()]


def whole(stage: Stage) -> None:
    assert log.verify(stage.root) == ()
    before = stage.ledger.read_bytes()
    stage.ledger.unlink()
    assert log.rebuild(stage.root).left_out == ()
    assert stage.ledger.read_bytes() == before, "git alone gives the same ledger"


def refused(stage: Stage, source: object, status: Status, *words: str) -> None:
    before = stage.head(), stage.ledger.read_bytes(), stage.read()
    with pytest.raises(Refusal, match=words[0]) as caught:
        merge(stage, source)
    assert caught.value.status is status
    assert all(word in caught.value.message for word in words)
    assert (stage.head(), stage.ledger.read_bytes(), stage.read()) == before
    assert stage.git("for-each-ref", "refs/ratchet/fetched") == ""


def test_no_row_is_lost_and_the_winner_is_judged_again(pair: tuple[Stage, Stage]) -> None:
    ours, theirs = pair
    mine, others = ids(ours), ids(theirs)
    ours.judged.clear()
    done, (outcome,) = merge(ours, theirs.root)
    assert (done.came, done.only_ahead) == (2, False)
    assert ids(ours) == [*mine, *others[1:], done.row, outcome.row.id]
    assert ours.judged == [kernel_text(1300.0)], "by this judge"
    assert outcome.decision == Decision.KEPT
    assert ours.read() == kernel_text(1300.0)
    assert ours.git("rev-parse", "HEAD^^2") == theirs.head(), "the merge commit has both heads"
    row = next(row for row in ours.rows() if row.id == done.row)
    lines = ledger.lines_of(ours.ledger.read_bytes())
    assert row.evidence == ledger.digest(lines[len(mine)])
    assert row.previous == ledger.digest(lines[len(mine) + 2])
    assert ours.status() == [" M results.tsv"]
    for name in others:
        assert ours.git("rev-parse", f"refs/ratchet/experiments/{name}"), "evidence of their experiments is kept"
    whole(ours)


def test_merging_again_has_nothing_to_do_and_the_other_way_round_gives_the_same_rows(pair: tuple[Stage, Stage]) -> None:
    ours, theirs = pair
    merge(ours, theirs.root)
    before = ours.head(), ours.ledger.read_bytes()
    again = merge(ours, theirs.root)
    assert (again[0].came, again[0].row, again[1]) == (0, "", ())
    back, outcomes = merge(theirs, ours.root)
    assert (back.only_ahead, outcomes) == (True, ())
    assert (theirs.head(), theirs.ledger.read_bytes()) == (ours.head(), ours.ledger.read_bytes()) == before
    assert theirs.read() == ours.read()
    assert theirs.status() == ours.status() == [" M results.tsv"]
    whole(theirs)
    tried(theirs, 1700.0)
    tried(ours, 1500.0, 1600.0)
    merge(ours, theirs.root)
    merge(theirs, ours.root)
    assert ours.read() == theirs.read() == kernel_text(1700.0)
    assert ids(ours) == ids(theirs)
    whole(ours)


def test_ours_stays_where_it_is_better(pair: tuple[Stage, Stage]) -> None:
    ours, theirs = pair
    ours.judged.clear()
    done, outcomes = merge(theirs, ours.root)
    assert (done.came, outcomes, ours.judged) == (2, (), [])
    assert theirs.read() == kernel_text(1300.0)
    whole(theirs)


def test_three_lines_become_one(pair: tuple[Stage, Stage], tmp_path: Path) -> None:
    ours, theirs = pair
    third = copy(theirs, tmp_path / "third")
    tried(third, 1400.0)
    tried(theirs, 1350.0)
    merge(theirs, third.root)
    tried(theirs, 1410.0)
    merge(ours, theirs.root)
    assert {*ids(third), *ids(theirs)} < set(ids(ours))
    assert ours.read() == kernel_text(1410.0)
    whole(ours)
    merge(third, ours.root)
    assert ids(third) == ids(ours)


def test_another_machine_judges_before_it_follows(
    pair: tuple[Stage, Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    merge(ours, theirs.root)
    tried(ours, 2000.0)
    monkeypatch.setattr(key, "path", lambda: tmp_path / "another" / "key")
    theirs.judged.clear()
    done, (outcome,) = merge(theirs, ours.root)
    assert not done.only_ahead
    assert theirs.judged[-1] == kernel_text(2000.0)
    assert outcome.decision == Decision.KEPT
    whole(theirs)
    monkeypatch.undo()


def test_a_kernel_that_fails_here_is_not_asked_for_again(pair: tuple[Stage, Stage]) -> None:
    ours, theirs = pair
    judge = StageJudge(ours)
    honest = judge.judge

    def fails(*arguments: object, **options: object) -> object:
        verdict = honest(*arguments, **options)  # type: ignore[arg-type]
        return dataclasses.replace(verdict, status=Status.WRONG_VALUES, score=None)

    judge.judge = fails  # type: ignore[method-assign, assignment]
    for expected in (1, 0):
        _, outcomes = merged(str(theirs.root), branch="", root=ours.root, judge=judge, wait_s=0, say=lambda _line: None)
        assert [one.decision for one in outcomes] == [Decision.REVERTED] * expected
    assert ours.read() == kernel_text(1100.0)
    whole(ours)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("left out", 6), ("reordered", 3), ("edited", 7), ("another head", 3), ("no merge row", 5),
        ("merge row twice", 8),
    ],
)  # fmt: skip
def test_a_forged_merge_is_seen(pair: tuple[Stage, Stage], fault: str, line: int) -> None:
    ours, theirs = pair
    done, _ = merge(ours, theirs.root)
    lines = ours.ledger.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if done.row in line and ledger.MERGED in line)
    row = ledger.parse_row(lines[at].rstrip("\n"))

    faults: dict[str, Callable[[], list[str]]] = {
        "left out": lambda: lines[: at - 1] + lines[at:],
        "reordered": lambda: lines[:2] + lines[4:6] + lines[2:4] + lines[6:],
        "edited": lambda: [*lines[: at - 1], lines[at - 1].replace("1200", "1201"), *lines[at:]],
        "another head": lambda: [
            *lines[:at],
            ledger.format_row(dataclasses.replace(row, evidence=ledger.digest(lines[1].rstrip("\n")))) + "\n",
        ],
        "no merge row": lambda: lines[:at],
        "merge row twice": lambda: [*lines[: at + 1], *lines[at:]],
    }
    ours.ledger.write_text("".join(faults[fault]()))
    with pytest.raises(Refusal, match=f"line {line} ") as caught:
        log.rows(ours.root)
    assert caught.value.status is Status.LEDGER_BROKEN
    assert [one.broken for one in log.verify(ours.root)] == [True]
    log.rebuild(ours.root)
    assert log.verify(ours.root) == ()


def test_another_problem_is_refused(pair: tuple[Stage, Stage]) -> None:
    for one, text in zip(pair, ("ours", "theirs"), strict=True):
        one.lock.write_text(text)
        one.git("add", one.lock.name)
        one.git("commit", "-qm", "a lock", "--", one.lock.name)
    refused(pair[0], pair[1].root, Status.PROBLEM_CHANGED, "frozen problems differ", pair[0].lock.name)


def test_another_seal_is_refused(pair: tuple[Stage, Stage]) -> None:
    ours, theirs = pair
    theirs.seal = "0the4"
    theirs.conditions = dataclasses.replace(CONDITIONS, seal=theirs.seal)
    tried(theirs, 1800.0)
    refused(ours, theirs.root, Status.SEAL_BROKEN, "another judge", "0the4", ours.seal)


def test_a_changed_judge_or_another_file_is_refused(pair: tuple[Stage, Stage]) -> None:
    ours, theirs = pair
    (theirs.root / "other.txt").write_text("theirs\n")
    theirs.git("commit", "-qm", "a file", "--", "other.txt")
    refused(ours, theirs.root, Status.DIRTY, "other.txt")
    ours.sealed = ("other.txt",)
    refused(ours, theirs.root, Status.SEAL_BROKEN, "other.txt", "files of the judge")
    (ours.root / "other.txt").write_text("theirs\n")
    ours.git("commit", "-qm", "taken over", "--", "other.txt")
    assert merge(ours, theirs.root)[0].came == 2


@pytest.mark.parametrize("fault", ["file", "commit", "row", "mac", "experiment"])
def test_a_tampered_ledger_is_refused(pair: tuple[Stage, Stage], fault: str) -> None:
    ours, theirs = pair
    last = theirs.rows()[-1]
    text = theirs.ledger.read_text()
    if fault == "file":
        theirs.ledger.write_text(text.replace("1300", "1301"))
    elif fault == "commit":
        theirs.ledger.write_text(text.replace("1000.0", "9000.0"))
        theirs.git("commit", "-qm", "rows", "--", "results.tsv")
    elif fault == "row":
        blob = theirs.git("hash-object", "-w", "kernel.py")
        theirs.git("update-ref", f"refs/ratchet/rows/{last.id}", blob)
    elif fault == "mac":
        mac = theirs.git("rev-parse", f"refs/ratchet/macs/{theirs.rows()[-2].id}")
        theirs.git("update-ref", f"refs/ratchet/macs/{last.id}", mac)
    else:
        theirs.git("update-ref", f"refs/ratchet/experiments/{last.id}", theirs.head())
    refused(ours, theirs.root, Status.LEDGER_BROKEN, "ledger of 'theirs' is broken")


def forged(theirs: Stage, **cells: str) -> None:
    """Their last row with other cells, on which their file, their refs and their chain agree; without a MAC."""
    lines = ledger.lines_of(theirs.ledger.read_bytes())
    name, row = ledger.parse_row(lines[-1]).id, dataclasses.replace(ledger.parse_row(lines[-1]), **cells)
    line = ledger.format_row(row)
    theirs.ledger.write_text("".join(f"{one}\n" for one in (*lines[:-1], line)))
    (theirs.root / "row").write_text(line)
    blob = theirs.git("hash-object", "-w", "row")
    for kind in ("rows", "macs", "experiments"):
        theirs.git("update-ref", "-d", f"refs/ratchet/{kind}/{name}")
    theirs.git("update-ref", "refs/ratchet/tips/main", blob)
    if row.id == name:
        theirs.git("update-ref", f"refs/ratchet/rows/{name}", blob)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        *(
            ("kernel", name)
            for name in ("../kernel.py", "/etc/passwd", ".git/config", "a/.GIT/b.py", "a\x1b.py", "a//b")
        ),
        *(("id", name) for name in ("../../heads/main", "main", "20260101-000000-00g0", "")),
        *(("commit", name) for name in ("HEAD", "--output=x", "")),
        *(("median_ms", number) for number in ("nan", "-1.0", "1e99999", "0x10", "one")),
        *(("status", "ROOT"), ("decision", "adopted"), ("time", "now"), ("note", "x" * 5000), ("seal", "\u202ecba")),
    ],
)
def test_a_cell_that_no_run_writes_is_refused(pair: tuple[Stage, Stage], column: str, cell: str) -> None:
    ours, theirs = pair
    forged(theirs, **{column: cell})
    refused(ours, theirs.root, Status.LEDGER_BROKEN, "ledger of 'theirs' is broken", f" as its {column}")


def test_a_row_that_nobody_signed_comes_and_decides_nothing(pair: tuple[Stage, Stage]) -> None:
    ours, theirs = pair
    forged(theirs, score="99999.0", decision=Decision.KEPT, status="PASS")
    merge(ours, theirs.root)
    last = ours.rows()[-1]
    assert (ours.read(), last.score) == (kernel_text(1300.0), "1300.0"), "judged here, by its kernel"
    assert [row.score for row in log.trusted(History(ours.root), ours.rows())].count("99999.0") == 0


@pytest.mark.parametrize("thing", ["a tree", "a commit", "a long line"])
def test_a_ref_that_names_no_line_is_refused(pair: tuple[Stage, Stage], thing: str) -> None:
    ours, theirs = pair
    (theirs.root / "long").write_bytes(b"x" * (1 << 20))
    named = {"a tree": "HEAD^{tree}", "a commit": "HEAD", "a long line": theirs.git("hash-object", "-w", "long")}
    theirs.git("update-ref", f"refs/ratchet/macs/{theirs.rows()[-1].id}", theirs.git("rev-parse", named[thing]))
    refused(ours, theirs.root, Status.LEDGER_BROKEN, "cannot be merged", "wanted a line")


def test_a_row_does_not_make_a_kernel_of_a_file_of_the_judges(pair: tuple[Stage, Stage]) -> None:
    ours, theirs = pair
    ours.sealed = ("other.txt",)
    (theirs.root / "other.txt").write_text("theirs\n")
    theirs.git("commit", "-qm", "a file", "--", "other.txt")
    forged(theirs, kernel="other.txt")
    refused(ours, theirs.root, Status.SEAL_BROKEN, "other.txt", "files of the judge")


def test_without_a_key_a_line_is_not_followed(pair: tuple[Stage, Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pair
    merge(ours, theirs.root)
    tried(ours, 2000.0)
    monkeypatch.setattr(key, "known", lambda: None)
    done, (outcome,) = merge(theirs, ours.root)
    assert (done.only_ahead, outcome.decision) == (False, Decision.KEPT), "judged here first"


def test_what_is_no_clone_of_this_is_refused(pair: tuple[Stage, Stage], tmp_path: Path) -> None:
    ours, _ = pair
    stranger = Stage.new(tmp_path / "stranger", score=1.0)
    stranger.git("commit", "-q", "--amend", "-m", "another beginning")
    stranger.run("baseline")
    refused(ours, stranger.root, Status.USAGE, "shares no commit")
    for nowhere in (tmp_path / "nowhere", "--upload-pack=true", "", "ext::sh -c true"):
        refused(ours, nowhere, Status.NOT_FOUND, "cannot be reached")


def test_a_dirty_tree_is_refused(pair: tuple[Stage, Stage]) -> None:
    ours, theirs = pair
    ours.write("SCORE = 7.0  # mine\n")
    refused(ours, theirs.root, Status.DIRTY, "kernel.py")


def test_a_branch_that_is_not_there(pair: tuple[Stage, Stage]) -> None:
    for branch in ("wide", "a b", "a..b", "@{-1}", "x.lock"):
        with pytest.raises(Refusal, match=re.escape(f"no branch {branch!r}")) as caught:
            merge(pair[0], pair[1].root, branch)
        assert caught.value.status is Status.NOT_FOUND


def test_a_remote_by_name_without_refs_gives_what_its_branch_has(pair: tuple[Stage, Stage], tmp_path: Path) -> None:
    ours, theirs = pair
    theirs.git("clone", "-q", "--bare", str(theirs.root), str(tmp_path / "hub.git"))
    ours.git("remote", "add", "hub", f"file://{tmp_path}/hub.git")
    done, (outcome,) = merge(ours, "hub")
    assert (done.name, done.came) == ("hub", 0), "the rows after the newest commit are in refs, which were not pushed"
    assert outcome.decision == Decision.KEPT
    assert log.verify(ours.root) == ()


@pytest.mark.parametrize("first", [True, False])
def test_a_clone_that_was_never_judged(stage: Stage, tmp_path: Path, first: bool) -> None:
    other = copy(stage, tmp_path / "theirs")
    other.freezes = True
    other.run("baseline")
    tried(other, 1300.0)
    if not first:
        stage.run("baseline")
    stage.freezes = True
    merge(stage, other.root)
    assert stage.read() == kernel_text(1300.0)
    assert set(ids(other)) <= set(ids(stage))
    whole(stage)


def test_an_untracked_file_where_one_of_theirs_would_come_is_refused_and_kept(stage: Stage, tmp_path: Path) -> None:
    other = copy(stage, tmp_path / "theirs")
    other.freezes = True
    other.run("baseline")
    stage.freezes = True
    stage.lock.write_text("mine\n")
    before = stage.head(), stage.status()
    with pytest.raises(Refusal, match=re.escape(f"{stage.lock.name} comes from 'theirs'")) as caught:
        merge(stage, other.root)
    assert caught.value.status is Status.DIRTY
    assert (stage.head(), stage.status(), stage.lock.read_text()) == (*before, "mine\n")
    stage.lock.unlink()
    merge(stage, other.root)
    assert stage.lock.read_bytes() == other.lock.read_bytes()
    whole(stage)
