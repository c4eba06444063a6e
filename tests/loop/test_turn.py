"""Keep, revert, baseline and no change, in real repositories."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from ratchet.loop import ledger, log
from ratchet.loop.experiment import Idea
from ratchet.loop.judge_only import judge_only
from ratchet.values import Decision
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, StageJudge, kernel_text


def test_baseline_then_no_change(stage: Stage) -> None:
    head = stage.head()
    outcome = stage.run("baseline")
    assert (outcome.status, outcome.decision) == (Status.PASS, Decision.BASELINE)
    (row,) = stage.rows()
    assert (row.commit, row.decision, row.status, row.score, row.note) == (
        head,
        "baseline",
        "PASS",
        "1000.0",
        "baseline",
    )
    assert stage.head() == head
    assert stage.git("rev-parse", f"refs/ratchet/experiments/{row.id}") == head
    again = stage.run("baseline")
    assert again.status is Status.NO_CHANGE
    assert again.row == row
    for expected in (row.id, "1000.0", "v5e-model", "libtpu 1 / jax 1", "5ea1", "9b0b"):
        assert expected in again.reason
    assert len(stage.rows()) == len(stage.judged) == 1


def test_better_is_kept(stage: Stage) -> None:
    stage.run("baseline")
    before = stage.head()
    stage.write(kernel_text(1500.0))
    outcome = stage.run("experiment: BQ 1024")
    assert (outcome.status, outcome.decision) == (Status.PASS, Decision.KEPT)
    assert "above 1000" in outcome.reason
    assert "50 %" in outcome.reason
    assert stage.git("rev-parse", "HEAD~1") == before
    assert stage.git("log", "-1", "--format=%B").strip() == "experiment: BQ 1024"
    assert stage.git("diff", "HEAD~1", "--stat", "--", "kernel.py")
    assert stage.git("diff", "--name-only", "HEAD~1").splitlines() == ["kernel.py", "results.tsv"]
    row = stage.rows()[-1]
    assert row.commit == stage.head()
    assert row.parent == before
    assert stage.git("show", f"{row.commit}:kernel.py") + "\n" == stage.read() == kernel_text(1500.0)
    assert stage.git("rev-parse", f"{row.commit}:kernel.py") == row.kernel_blob
    # HEAD holds the rows so far; only this experiment's own row is new.
    assert stage.git("show", "HEAD:results.tsv").splitlines() == stage.ledger.read_text().splitlines()[:-1]
    assert stage.status() == [" M results.tsv"]
    assert stage.git("diff-index", "--name-only", "HEAD").splitlines() == ["results.tsv"]
    assert log.verify(stage.root) == ()


def test_what_cannot_be_kept_is_reverted_before_its_values_are_checked(stage: Stage) -> None:
    stage.run("baseline")
    stage.hurried = True
    before, kernel = stage.head(), stage.read()
    stage.write(kernel_text(900.0))
    outcome = stage.run("slower")
    assert (outcome.decision, outcome.status) == (Decision.REVERTED, Status.UNCHECKED)
    row = stage.rows()[-1]
    assert "10 % below" in row.reason
    assert float(row.score) == 900.0
    assert (stage.head(), stage.read()) == (before, kernel)
    stage.write(kernel_text(1100.0))
    assert stage.run("faster").decision == Decision.KEPT
    assert log.verify(stage.root) == ()


TRADE = kernel_text(1020.0, "TIMES = 1.98, 0.4\n")
"""Faster than the incumbent's 2 ms with 0.5 ms of waiting, by issuing more and waiting less."""


@pytest.mark.parametrize("accepted", [False, True])
def test_a_trade_is_kept_only_on_purpose_and_the_row_says_so(stage: Stage, accepted: bool) -> None:
    stage.write(kernel_text(1000.0, "TIMES = 2.0, 0.5\n"))
    stage.git("commit", "-qam", "an incumbent that waits")
    stage.run("baseline")
    before = stage.head()
    stage.write(TRADE)
    outcome = stage.run(idea=Idea(message="fewer, larger copies", accept_trade=accepted))
    row = stage.rows()[-1]
    assert row.reason == outcome.reason
    assert (row.decision, row.status) == (outcome.decision, outcome.status.name)
    if accepted:
        assert (outcome.decision, outcome.status) == (Decision.KEPT, Status.PASS)
        assert "too near to be ranked, accepted on purpose" in row.reason
        assert stage.git("show", "HEAD:kernel.py") + "\n" == TRADE
        return
    assert (outcome.decision, outcome.status) == (Decision.REVERTED, Status.NOT_BETTER)
    assert "2 % above" in row.reason
    assert row.reason.endswith("--accept-trade keeps it on purpose; changes 2 at once: SCORE, TIMES")
    assert stage.head() == before
    assert stage.read() != TRADE


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (kernel_text(900.0), Status.NOT_BETTER),
        (kernel_text(1000.0, "# other words\n"), Status.NOT_BETTER),
        (kernel_text("nan"), Status.INVALID),
        ('STATUS = "WRONG_VALUES"\n', Status.WRONG_VALUES),
        ('STATUS = "TIMEOUT"\n', Status.TIMEOUT),
    ],
)
def test_not_better_is_reverted(stage: Stage, text: str, status: Status) -> None:
    stage.run("baseline")
    before, kernel = stage.head(), stage.read()
    os.chmod(stage.root / "kernel.py", 0o640)
    stage.write(text)
    (stage.root / "hlo_dumps").mkdir()
    (stage.root / "hlo_dumps" / "evidence").write_text("kept")
    outcome = stage.run("a worse idea")
    assert (outcome.status, outcome.decision) == (status, Decision.REVERTED)
    assert stage.head() == before
    assert stage.read() == kernel
    assert (stage.root / "kernel.py").stat().st_mode & 0o777 == 0o640
    row = stage.rows()[-1]
    assert (row.decision, row.status) == ("reverted", status.name)
    assert stage.git("show", f"{row.commit}:kernel.py") + "\n" == text
    assert stage.git("log", "-1", "--format=%s", row.commit) == "a worse idea"
    assert (stage.root / "hlo_dumps" / "evidence").exists()
    assert stage.status() == ["?? results.tsv"]
    assert log.verify(stage.root) == ()


def test_a_losing_row_does_not_lower_the_bar(stage: Stage) -> None:
    stage.run("baseline")
    stage.write(kernel_text(100.0))
    stage.run("bad")
    stage.write(kernel_text(500.0))
    assert stage.run("between").decision == Decision.REVERTED
    assert [row.decision for row in stage.rows()] == ["baseline", "reverted", "reverted"]


def test_head_is_judged_first_without_a_row(stage: Stage) -> None:
    stage.write(kernel_text(1500.0))
    outcome = stage.run("first of all")
    assert [row.decision for row in stage.rows()] == ["baseline", "kept"]
    assert outcome.baseline == stage.rows()[0]
    assert outcome.incumbent == stage.rows()[0]
    assert stage.judged == [kernel_text(1000.0), kernel_text(1500.0)]
    stage.write(kernel_text(1600.0))
    stage.run("second")
    assert len(stage.judged) == 3, "the kept row is the incumbent's"


@pytest.mark.parametrize("name", ["evaluator", "chip", "compiler", "seal", "problem"])
def test_other_conditions_judge_the_incumbent_again(stage: Stage, name: str) -> None:
    stage.run("baseline")
    stage.conditions = dataclasses.replace(
        stage.conditions, **{name: "another"}, series="another" if name == "seal" else ""
    )
    stage.write(kernel_text(1500.0))
    outcome = stage.run("under other conditions")
    assert outcome.baseline is not None
    assert ("series" if name == "seal" else name) in outcome.baseline.reason
    assert [row.decision for row in stage.rows()] == ["baseline", "baseline", "kept"]


def test_first_pass_is_kept_when_head_fails(tmp_path: Path) -> None:
    stage = Stage.new(tmp_path / "r", score='0\nSTATUS = "WRONG_VALUES"')
    stage.write(kernel_text(3.0))
    outcome = stage.run("repair")
    assert outcome.decision == Decision.KEPT
    assert "first kernel that passes" in outcome.reason
    assert stage.rows()[0].status == "WRONG_VALUES"


def test_a_broken_judge_is_not_the_kernels_fault(stage: Stage) -> None:
    stage.run("baseline")
    stage.write('STATUS = "INFRASTRUCTURE"\n')
    outcome = stage.run("unlucky")
    assert (outcome.status, outcome.decision) == (Status.INFRASTRUCTURE, Decision.JUDGED)
    assert stage.read() == 'STATUS = "INFRASTRUCTURE"\n', "the file was left alone"


def test_nothing_is_compared_with_an_incumbent_that_could_not_be_judged(tmp_path: Path) -> None:
    stage = Stage.new(tmp_path / "r", score='0\nSTATUS = "INFRASTRUCTURE"')
    stage.write(kernel_text(3.0))
    with pytest.raises(Refusal) as refusal:
        stage.run("would lower the bar")
    assert refusal.value.status is Status.INFRASTRUCTURE
    assert stage.read() == kernel_text(3.0)


def test_a_fresh_clone_judges_head_here_and_says_whether_it_reproduces(stage: Stage, tmp_path: Path) -> None:
    stage.run("baseline")
    stage.git("add", "results.tsv")
    stage.git("commit", "-q", "-m", "rows so far")
    clone = stage.clone(tmp_path / "clone")
    outcome = clone.run("baseline")
    assert (outcome.status, outcome.decision) == (Status.PASS, Decision.BASELINE)
    assert "the same to the last digit" in outcome.reason
    assert clone.run("baseline").status is Status.NO_CHANGE
    assert len(clone.rows()) == 2
    assert log.verify(clone.root) == ()


def test_freezing_the_problem_is_committed(stage: Stage) -> None:
    stage.freezes = True
    before = stage.head()
    outcome = stage.run("baseline")
    assert outcome.status is Status.PASS
    assert stage.git("rev-parse", "HEAD~1") == before
    assert stage.rows()[0].commit == stage.head()
    assert stage.git("ls-files", stage.lock.name)
    assert stage.status() == ["?? results.tsv"]
    assert stage.run("baseline").status is Status.NO_CHANGE


def test_a_failing_candidate_takes_its_frozen_problem_with_it(tmp_path: Path) -> None:
    stage = Stage.new(tmp_path / "r", score='0\nSTATUS = "CONTRACT"')
    stage.freezes = True
    stage.write('STATUS = "WRONG_VALUES"\n')
    assert stage.run("no better").decision == Decision.REVERTED
    assert not stage.lock.exists()
    assert stage.status() == ["?? results.tsv"]


def test_the_frozen_problem_changes_only_on_purpose(stage: Stage) -> None:
    stage.freezes = True
    stage.run("baseline")
    stage.write(kernel_text(1500.0))
    for change in (lambda: stage.lock.write_text("easier"), stage.lock.unlink):
        change()
        with pytest.raises(Refusal, match="frozen problem") as refusal:
            stage.run("an easier exam")
        assert refusal.value.status is Status.DIRTY
    stage.git("checkout", "HEAD", "--", stage.lock.name)
    stage.lock.unlink()
    stage.write(kernel_text(10.0))
    outcome = stage.run(idea=Idea(message="a new problem", new_problem=True))
    assert outcome.decision == Decision.KEPT
    assert outcome.incumbent is None
    assert stage.status() == [" M results.tsv"]


def test_a_new_problem_that_fails_leaves_the_old_one(stage: Stage) -> None:
    stage.freezes = True
    stage.run("baseline")
    old = stage.lock.read_text()
    stage.write('STATUS = "WEAK_PROBLEM"\n')
    stage.during = lambda: stage.lock.write_text("weak")  # type: ignore[assignment,return-value]
    outcome = stage.run(idea=Idea(message="a weak problem", new_problem=True))
    assert outcome.decision == Decision.REVERTED
    assert stage.lock.read_text() == old
    assert stage.read() == kernel_text(1000.0)


def test_editing_while_judging_changes_nothing_that_is_judged(stage: Stage) -> None:
    stage.run("baseline")
    stage.write(kernel_text(900.0))
    stage.during = lambda: stage.write(kernel_text(2000.0))
    outcome = stage.run("slower")
    assert outcome.decision == Decision.REVERTED
    assert stage.read() == kernel_text(2000.0), "the user's new words are not overwritten"
    assert any("was changed while it was judged" in note for note in outcome.notes)
    assert stage.git("show", f"{outcome.row.commit}:kernel.py") == "SCORE = 900.0"


def test_editing_while_a_better_kernel_is_judged(stage: Stage) -> None:
    stage.run("baseline")
    stage.write(kernel_text(1200.0))
    stage.during = lambda: stage.write(kernel_text(2000.0))
    assert stage.run("faster").decision == Decision.KEPT
    assert stage.read() == kernel_text(2000.0)
    assert stage.git("show", "HEAD:kernel.py") == "SCORE = 1200.0"
    assert stage.status() == [" M kernel.py", " M results.tsv"]


def test_a_branch_that_moved_is_left_where_it_is(stage: Stage) -> None:
    stage.run("baseline")
    stage.write(kernel_text(1500.0))
    stage.during = lambda: stage.git("commit", "-q", "--allow-empty", "-m", "meanwhile")  # type: ignore[assignment,return-value]
    outcome = stage.run("faster")
    assert (outcome.status, outcome.decision) == (Status.BRANCH_MOVED, Decision.JUDGED)
    assert stage.git("log", "-1", "--format=%s") == "meanwhile"
    assert stage.read() == kernel_text(1500.0)
    assert stage.rows()[-1].status == "PASS"
    stage.during = lambda: None
    assert stage.run("faster, again").decision == Decision.KEPT


def test_a_new_kernel_that_fails_stays_where_it_is(stage: Stage) -> None:
    stage.run("baseline")
    stage.kernel = "examples/new.py"
    stage.write('STATUS = "CONTRACT"\n')
    outcome = stage.run("a first try")
    assert outcome.decision == Decision.REVERTED
    assert stage.read() == 'STATUS = "CONTRACT"\n'
    stage.write(kernel_text(1.0))
    assert stage.run("a second").decision == Decision.KEPT
    assert stage.git("ls-files", "examples/new.py")


@pytest.mark.parametrize(
    "kernel",
    ["sub/deep folder/kernel.py", "noyau é 核.py", "[a]*.py", "-dash.py", "quote'\".py", "not text \udcff.py"],
    ids=ascii,
)
def test_any_path(tmp_path: Path, kernel: str) -> None:
    stage = Stage.new(tmp_path / "a path with späces", kernel=kernel)
    stage.run("baseline")
    stage.write(kernel_text(5.0))
    assert stage.run("worse").decision == Decision.REVERTED
    assert stage.read() == kernel_text(1000.0)
    stage.write(kernel_text(5000.0))
    assert stage.run("better").decision == Decision.KEPT
    assert stage.status() == [" M results.tsv"]
    assert {row.kernel for row in stage.rows()} == {kernel}
    assert log.verify(stage.root) == ()


def test_executable_bit_is_kept(stage: Stage) -> None:
    os.chmod(stage.root / "kernel.py", 0o755)
    stage.git("commit", "-q", "-a", "-m", "executable")
    stage.write(kernel_text(2000.0))
    stage.run("better")
    assert stage.git("ls-tree", "HEAD", "kernel.py").startswith("100755")
    assert stage.status() == [" M results.tsv"]


@pytest.mark.parametrize(
    "message",
    [
        "tabs\tand \"quotes\" and 'more'",
        "subject\n\nbody of\r\nseveral lines\n",
        "$(touch pwned) `touch pwned` ; touch pwned",
        "x" * 10_000,
        "--amend",
        "-m",
        '"opens with a quote',
        "# not a comment\n# at all",
        "  spaces around  ",
        "é 核 \u2028 \x85 \x1b[31m",
    ],
)
def test_any_message(stage: Stage, message: str) -> None:
    stage.write(kernel_text(1500.0))
    stage.run(message)
    row = stage.rows()[-1]
    raw = subprocess.run(
        ["git", "cat-file", "commit", row.commit], cwd=stage.root, check=True, capture_output=True
    ).stdout
    assert raw.partition(b"\n\n")[2].rstrip(b"\n") == message.encode("utf-8", "surrogateescape").rstrip(b"\n")
    assert row.note == ledger.note(message)
    assert len(stage.ledger.read_text().splitlines()) == len(stage.ledger.read_bytes().split(b"\n")) - 1 == 3
    assert not (stage.root / "pwned").exists()
    stage.write(kernel_text(1600.0))
    assert stage.run("the next").decision == Decision.KEPT


def test_a_message_that_is_not_text_is_stored_visibly(stage: Stage) -> None:
    stage.write(kernel_text(1500.0))
    row = stage.run("not UTF-8: \udcff").row
    assert row.note == "not UTF-8: \udcff"
    assert stage.git("log", "-1", "--format=%s") == "not UTF-8: \\udcff"


def test_a_staged_kernel_is_unstaged_by_a_revert_and_other_stages_stay(stage: Stage) -> None:
    stage.run("baseline")
    stage.write(kernel_text(5.0))
    stage.git("add", "kernel.py")
    stage.run("worse, and staged")
    assert stage.status() == ["?? results.tsv"]


def test_a_staged_ledger_follows_head(stage: Stage) -> None:
    stage.run("baseline")
    stage.git("add", "results.tsv")
    for score in (5.0, 1500.0):
        stage.write(kernel_text(score))
        stage.run("an idea")
    assert stage.status() == [" M results.tsv"]


def test_hooks_do_not_run(stage: Stage) -> None:
    hooks = stage.root / ".git" / "hooks"
    for name in ("pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change"):
        (hooks / name).write_text("#!/bin/sh\ntouch hook-ran\nexit 1\n")
        (hooks / name).chmod(0o755)
    stage.write(kernel_text(1500.0))
    assert stage.run("better").decision == Decision.KEPT
    assert not (stage.root / "hook-ran").exists()


@pytest.mark.parametrize(
    "setting",
    [
        "commit.gpgSign=true",
        "core.autocrlf=true",
        "core.autocrlf=input",
        "core.safecrlf=true",
        "core.fileMode=false",
        "status.showUntrackedFiles=no",
        "status.relativePaths=true",
        "core.quotePath=true",
        "i18n.commitEncoding=ISO-8859-1",
        "core.fsmonitor=/bin/false",
        "core.logAllRefUpdates=false",
        "color.ui=always",
        "index.version=4",
    ],
)
def test_settings_of_the_user(stage: Stage, setting: str) -> None:
    name, _, value = setting.partition("=")
    stage.git("config", name, value)
    stage.write(kernel_text(5.0))
    assert stage.run("worse ä").decision == Decision.REVERTED
    stage.write(kernel_text(1500.0))
    assert stage.run("better ä").decision == Decision.KEPT
    assert stage.git("diff", "--name-only", "--no-color").splitlines() == ["results.tsv"]
    assert log.verify(stage.root) == ()


def test_a_checkout_with_other_line_ends(stage: Stage) -> None:
    stage.git("config", "core.autocrlf", "true")
    (stage.root / "kernel.py").unlink()
    stage.git("checkout", "--", "kernel.py")
    assert b"\r\n" in (stage.root / "kernel.py").read_bytes()
    stage.run("baseline")
    (stage.root / "kernel.py").write_bytes(b"SCORE = 5.0\r\n")
    assert stage.run("worse").decision == Decision.REVERTED
    assert (stage.root / "kernel.py").read_bytes() == b"SCORE = 1000.0\r\n"
    assert stage.judged == ["SCORE = 1000.0\n", "SCORE = 5.0\n"], "what git stores is what is judged"


def test_misleading_environment(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Stage.new(tmp_path / "other")
    untouched = other.git("for-each-ref")
    stage.write(kernel_text(1500.0))
    index = (other.root / ".git" / "index").read_bytes()
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.root))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git" / "index"))
    monkeypatch.setenv("GIT_TRACE", "1")
    assert stage.run("better").decision == Decision.KEPT
    assert other.git("for-each-ref") == untouched
    assert (other.root / ".git" / "index").read_bytes() == index
    assert not other.ledger.exists()


def test_a_linked_worktree_has_its_own_branch_and_ledger(stage: Stage, tmp_path: Path) -> None:
    stage.run("baseline")
    tree = Stage(root=tmp_path / "tree")
    stage.git("worktree", "add", "-q", "-b", "side", str(tree.root))
    tree.write(kernel_text(1500.0))
    assert tree.run("better, beside").decision == Decision.KEPT
    stage.write(kernel_text(900.0))
    assert stage.run("worse").decision == Decision.REVERTED
    assert [row.decision for row in stage.rows()] == ["baseline", "reverted"]
    assert [row.decision for row in tree.rows()] == ["baseline", "kept"]
    assert log.verify(stage.root) == log.verify(tree.root) == ()


def test_nested_in_another_repository(tmp_path: Path) -> None:
    outer = Stage.new(tmp_path / "outer")
    inner = Stage.new(outer.root / "inner")
    before = outer.git("for-each-ref")
    inner.write(kernel_text(1500.0))
    assert inner.run("better").decision == Decision.KEPT
    assert outer.git("for-each-ref") == before


def test_sha256_repository(tmp_path: Path) -> None:
    stage = Stage(root=tmp_path / "r")
    stage.root.mkdir()
    stage.git("init", "-q", "-b", "main", "--object-format=sha256")
    stage.git("config", "user.name", "A. User")
    stage.git("config", "user.email", "user@example.invalid")
    stage.write(kernel_text(1000.0))
    stage.git("add", ".")
    stage.git("commit", "-q", "-m", "first")
    stage.write(kernel_text(1500.0))
    assert stage.run("better").decision == Decision.KEPT
    assert log.verify(stage.root) == ()


def test_judging_only_leaves_branch_index_and_files_alone(stage: Stage) -> None:
    stage.write(kernel_text(700.0))
    (stage.root / "other.txt").write_text("changed too\n")
    before = stage.head(), stage.status(), stage.git("branch")
    outcome = judge_only(root=stage.root, kernel=Path("kernel.py"), judge=StageJudge(stage))
    assert (outcome.status, outcome.decision) == (Status.PASS, Decision.JUDGED)
    assert (stage.head(), stage.status()[:2], stage.git("branch")) == before
    (row,) = stage.rows()
    assert stage.git("show", f"{row.commit}:kernel.py") == "SCORE = 700.0"
    assert log.verify(stage.root) == ()
    stage.git("checkout", "--", "other.txt", "kernel.py")
    assert stage.run("baseline").decision == Decision.BASELINE
