"""Every turn ends in a row, or changes nothing: whatever happens while it runs, and whatever the last one left."""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.loop import log, plumbing
from ratchet.loop.history import History
from ratchet.loop.judge_only import judge_only
from ratchet.values import Decision
from ratchet.values.status import Refusal, Status
from tests.loop.stage import NO_FILES, Stage, StageJudge, kernel_text


def detach(stage: Stage) -> None:
    stage.git("checkout", "-q", "--detach")


def delete_the_branch(stage: Stage) -> None:
    stage.git("symbolic-ref", "HEAD", "refs/heads/nowhere")


def break_the_ledger(stage: Stage) -> None:
    stage.ledger.write_bytes(stage.ledger.read_bytes()[:-20])


def put_a_pipe_for_the_ledger(stage: Stage) -> None:
    stage.ledger.rename(stage.root / "elsewhere")
    os.mkfifo(stage.ledger)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (detach, Status.DETACHED_HEAD),
        (delete_the_branch, Status.NO_COMMIT),
        (break_the_ledger, Status.LEDGER_BROKEN),
        (put_a_pipe_for_the_ledger, Status.LEDGER_BROKEN),
    ],
)
def test_what_is_broken_while_judging_ends_the_turn_without_a_row(
    stage: Stage, change: Callable[[Stage], None], status: Status
) -> None:
    stage.run("baseline")
    refs = stage.git("for-each-ref", "refs/heads", "refs/ratchet/rows")
    stage.write(kernel_text(900.0))
    stage.during = lambda: change(stage)
    with pytest.raises(Refusal) as refusal:
        stage.run("worse")
    assert refusal.value.status is status
    assert stage.read() == kernel_text(900.0)
    assert stage.git("for-each-ref", "refs/heads", "refs/ratchet/rows") == refs
    assert not (stage.root / ".git" / "ratchet" / "pending.json").exists()


@pytest.mark.parametrize("what", ["evidence", "seal"])
def test_a_judge_that_fails_beside_its_verdict_changes_nothing(stage: Stage, what: str) -> None:
    stage.run("baseline")
    stage.freezes = True
    stage.write(kernel_text(1500.0))
    before = stage.head(), stage.status(), stage.ledger.read_bytes()

    class Failing(StageJudge):
        pass

    def fails(self: StageJudge, *_: object) -> str:
        if stage.judged[1:]:
            raise OSError(5, "Input/output error")
        return "5ea1"

    setattr(Failing, what, fails)
    with pytest.raises(OSError, match="Input/output"):
        stage.run("better", judge=Failing(stage))
    assert (stage.head(), stage.status(), stage.ledger.read_bytes()) == before
    assert stage.run("better").decision == Decision.KEPT


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_a_kernel_that_is_no_file_after_judging_is_left_as_it_is(stage: Stage, make: Callable[[Path], None]) -> None:
    stage.run("baseline")
    stage.write(kernel_text(900.0))
    path = stage.root / "kernel.py"

    def during() -> None:
        path.unlink()
        make(path)

    stage.during = during
    outcome = stage.run("worse")
    assert outcome.decision == Decision.REVERTED
    assert any("left as it is" in note for note in outcome.notes)
    assert not path.is_file() or path.is_symlink()
    assert (stage.root / "other.txt").read_text() == "other\n"
    assert log.verify(stage.root) == ()


@pytest.mark.parametrize("what", ["kernel.py", "kernel.py.lock.json", "results.tsv"])
@pytest.mark.parametrize("only", [False, True], ids=["turn", "judge only"])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(stage: Stage, what: str, only: bool) -> None:
    stage.freezes = True
    stage.run("baseline")
    stage.write(kernel_text(900.0))
    (stage.root / what).unlink()
    os.mkfifo(stage.root / what)
    judging = {"root": stage.root, "kernel": Path("kernel.py"), "judge": StageJudge(stage)}
    with pytest.raises(Refusal, match="regular file"):
        judge_only(**judging) if only else stage.run("an idea")
    assert len(stage.judged) == 1


@pytest.mark.slow
def test_a_kernel_file_larger_than_memory_is_refused(stage: Stage) -> None:
    os.truncate(stage.root / "kernel.py", 1 << 40)
    with pytest.raises(Refusal, match="is larger than") as refusal:
        stage.run("sparse")
    assert refusal.value.status is Status.USAGE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_kernel_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        stage = Stage.new(folder / "repository")
        assert History(stage.root), "what it imports, another user may not be able to read"
        for path in (stage.root, *stage.root.rglob("*")):
            os.chown(path, nobody, -1)
        (stage.root / "kernel.py").chmod(0)
        settings = folder / "gitconfig"
        settings.touch()
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
        pid = os.fork()
        if not pid:
            os.setuid(nobody)
            try:
                stage.run("an idea")
            except Refusal as refusal:
                os._exit(refusal.status.exit_code if "cannot be read" in refusal.message else 98)
            finally:
                os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == Status.NOT_FOUND.exit_code
        assert not stage.ledger.exists()
    finally:
        shutil.rmtree(folder)


# --- what a killed run leaves ---


STALE = ["index.lock", "HEAD.lock", "packed-refs.lock", "refs/heads/main.lock", "refs/ratchet/tips/main.lock"]


def killed(stage: Stage) -> None:
    """A run that was killed while it held the repository."""
    holder = stage.root / ".git" / "ratchet" / "holder.json"
    holder.parent.mkdir(exist_ok=True)
    holder.write_text(json.dumps({"pid": 1, "since": "", "message": "", "git_dir": str(stage.root / ".git")}))


@pytest.mark.parametrize("name", STALE)
@pytest.mark.parametrize("score", [900.0, 1500.0], ids=["reverted", "kept"])
def test_locks_of_git_that_a_killed_run_left_are_removed(stage: Stage, name: str, score: float) -> None:
    stage.run("baseline")
    stage.write(kernel_text(score))
    lock = stage.root / ".git" / name
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    killed(stage)
    said: list[str] = []
    outcome = stage.run("an idea", progress=said.append)
    assert outcome.decision == (Decision.KEPT if score > 1000 else Decision.REVERTED)
    assert outcome.notes == ()
    assert said[0] == f"removed locks of git that a killed run left: {name}"
    assert not lock.exists()
    assert log.verify(stage.root) == ()


def test_a_killed_run_of_another_worktree_left_its_index_locked(stage: Stage, tmp_path: Path) -> None:
    stage.run("baseline")
    stage.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    other, elsewhere = stage.root / ".git" / "worktrees" / "side", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for named, folder in ((other, other), (elsewhere, elsewhere)):
        (folder / "index.lock").touch()
        holder = {"pid": 1, "since": "", "message": "", "git_dir": str(named)}
        (stage.root / ".git" / "ratchet" / "holder.json").write_text(json.dumps(holder))
        stage.run("baseline")
    assert not (other / "index.lock").exists()
    assert (elsewhere / "index.lock").exists(), "no folder of this repository's"


@pytest.mark.parametrize("name", ["HEAD.lock", "refs/heads/main.lock"])
def test_a_lock_that_no_killed_run_left_is_the_users(stage: Stage, name: str) -> None:
    """It may be held by a program that is no git: the turn says so and changes nothing, and the next one finishes."""
    stage.run("baseline")
    stage.write(kernel_text(1500.0))
    lock = stage.root / ".git" / name
    lock.touch()
    with pytest.raises(Refusal, match="lock"):
        stage.run("better")
    assert lock.exists()
    lock.unlink()
    stage.run("better")
    assert [row.decision for row in stage.rows()] == ["baseline", "kept"]
    assert stage.head() == stage.rows()[-1].commit
    assert log.verify(stage.root) == ()


@pytest.mark.parametrize(
    ("arguments", "locks"),
    [("refs/heads/main", ["refs/heads/main.lock", "HEAD.lock"]), ("--index-info", ["index.lock"])],
    ids=["moving the branch", "writing the index"],
)
def test_a_git_that_is_killed_alone_leaves_no_lock(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, locks: list[str]
) -> None:
    """By the system, when memory is short: the turn goes on, or the next one finishes it."""
    stage.run("baseline")
    stage.write(kernel_text(1500.0))
    git, armed, folder = shutil.which("git"), tmp_path / "armed", stage.root / ".git"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text(
        f"""#!/bin/sh
        case "$*" in *update*{arguments}*)
            if [ -e {armed} ] && [ -z "$GIT_INDEX_FILE" ]; then
                rm {armed}; cd {folder}; touch {" ".join(locks)}; kill -9 $$
            fi
        esac
        exec {git} "$@"
        """
    )
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setattr("git.Git.GIT_PYTHON_GIT_EXECUTABLE", str(tmp_path / "bin" / "git"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    stage.during = armed.touch
    with contextlib.suppress(Refusal):
        assert stage.run("better").notes == ()
    assert not armed.exists(), "the git was killed"
    assert [name for name in locks if (folder / name).exists()] == []
    stage.during = lambda: None
    stage.run("better")
    assert [row.decision for row in stage.rows()] == ["baseline", "kept"]
    assert stage.head() == stage.rows()[-1].commit
    assert stage.status() == [" M results.tsv"]
    assert log.verify(stage.root) == ()


def test_locks_stay_while_a_git_is_at_work(stage: Stage) -> None:
    lock = stage.root / ".git" / "index.lock"
    lock.touch()
    git = subprocess.Popen(["git", "cat-file", "--batch"], cwd=stage.root, stdin=subprocess.PIPE)
    folders = {"root": stage.root, "common_dir": stage.root / ".git", "git_dir": stage.root / ".git"}
    try:
        while Path(f"/proc/{git.pid}/comm").read_text() != "git\n":
            assert git.poll() is None
        (line,) = plumbing.clear(**folders, patience_s=0)
        assert line == f"git is at work here (process {git.pid}), so its locks stay: index.lock"
        assert lock.exists()
    finally:
        git.communicate()
    (line,) = plumbing.clear(**folders, patience_s=250)
    assert line.endswith("index.lock")
    assert not lock.exists()
    assert plumbing.clear(**folders) == ()


def test_a_run_that_ends_in_order_leaves_nothing_to_remove(stage: Stage) -> None:
    stage.run("baseline")
    (stage.root / ".git" / "HEAD.lock").touch()
    said: list[str] = []
    stage.run("baseline", progress=said.append)
    assert said == []


def test_a_killed_judge_leaves_no_child(stage: Stage, tmp_path: Path) -> None:
    """Not even one that hangs: the kernel of Linux ends what holds the other end of its channel."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from ratchet.process.sandbox.child import JAILED, Child, Limits\n"
        "child = Child('tests.process.sandbox.hostile', directory=Path(sys.argv[1]), walls=JAILED)\n"
        "print(child._process.pid, child.missing, flush=True)\n"
        "sys.stdin.read()\n"
    )
    here = Path(__file__).parents[2]
    command = [sys.executable, "-c", code, str(tmp_path / "child")]
    judge = subprocess.Popen(command, cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert judge.stdout is not None
    child = int(judge.stdout.readline().split()[0])
    judge.send_signal(signal.SIGKILL)
    judge.communicate()
    while is_running(child):
        time.sleep(0.05)


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
