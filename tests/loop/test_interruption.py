"""Kills, interrupts and two runs at once, in real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ratchet.loop import ledger, log, state
from ratchet.loop.history import History
from ratchet.loop.refs import Refs
from ratchet.values import Decision
from ratchet.values.status import Refusal, Status
from tests.imports import HERE
from tests.loop.stage import Stage, kernel_text
from tests.loop.test_ledger import LOST
from tests.tiers import slow


@pytest.mark.parametrize(
    ("scenario", "sent"),
    [
        slow("first_of_all", "SIGKILL"),  # the changes of the next, and a lock's
        slow("reverted", "SIGKILL"),  # the changes of what is kept, too
        ("kept", "SIGINT"),
        slow("placed", "SIGKILL"),  # the changes of what is kept, and a candidate's
        ("followed", "SIGKILL"),
        slow("joined", "SIGKILL"),  # the changes of the one before, and of what is kept
        slow("reverted", "SIGINT"),  # the same code interrupts what is kept
    ],
)
def test_struck_at_every_change(tmp_path: Path, scenario: str, sent: str) -> None:
    command = [sys.executable, "-m", "tests.loop.killer", scenario, sent, str(tmp_path)]
    done = subprocess.run(command, cwd=HERE, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 12, "the sweep saw every change there is"


def slow_run(stage: Stage, started: Path) -> subprocess.Popen[str]:
    """A turn in a process of its own, whose judge takes until it is interrupted."""
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from ratchet.values.status import Refusal\n"
        "from tests.loop.stage import Stage\n"
        "root, started = map(Path, sys.argv[1:])\n"
        "stage = Stage(root=root, freezes=True)\n"
        "def during():\n"
        "    started.touch()\n"
        "    time.sleep(600)\n"
        "stage.during = during\n"
        "try:\n"
        "    stage.run('the slow one')\n"
        "except Refusal as refusal:\n"
        "    print(refusal.message)\n"
        "    sys.exit(refusal.status.exit_code)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(stage.root), str(started)], cwd=HERE, stdout=subprocess.PIPE, text=True
    )
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_while_judging(stage: Stage, tmp_path: Path, sent: signal.Signals) -> None:
    stage.write(kernel_text(1500.0))
    head = stage.head()
    process = slow_run(stage, tmp_path / "started")
    process.send_signal(sent)
    out, _ = process.communicate()
    assert process.returncode == 130
    assert "nothing was kept or lost" in out
    assert stage.head() == head
    assert stage.read() == kernel_text(1500.0)
    assert stage.status() == [" M kernel.py"], "no row, and the problem lock that the judge wrote is gone"
    assert stage.run("again").decision == Decision.KEPT


def test_a_second_run_is_refused_with_the_owner(stage: Stage, tmp_path: Path) -> None:
    stage.write(kernel_text(1500.0))
    process = slow_run(stage, tmp_path / "started")
    try:
        with pytest.raises(Refusal) as refusal:
            stage.run("impatient")
        assert refusal.value.status is Status.BUSY
        for words in (f"process {process.pid}", "the slow one", "since"):
            assert words in refusal.value.message
        lines: list[str] = []

        def while_it_waits(line: str) -> None:
            lines.append(line)
            process.kill()

        outcome = stage.run("patient", wait_s=250, progress=while_it_waits)
        assert outcome.decision == Decision.KEPT
        assert "the slow one" in lines[0]
    finally:
        process.kill()
        process.communicate()


def test_two_at_once_both_come_through(stage: Stage) -> None:
    stage.run("baseline")
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.loop.stage import Stage, StageJudge\n"
        "from ratchet.loop.judge_only import judge_only\n"
        "stage = Stage(root=Path(sys.argv[1]))\n"
        "for _ in range(3):\n"
        "    judge_only(root=stage.root, kernel=Path('kernel.py'), judge=StageJudge(stage))\n"
    )
    command = [sys.executable, "-c", code, str(stage.root)]
    processes = [subprocess.Popen(command, cwd=HERE) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(stage.rows()) == 7
    assert log.verify(stage.root) == ()


def pending(stage: Stage, score: float, owner: object = ledger, name: str = "write") -> dict[str, object]:
    """A turn that was cut off after its decision was written down: before the row is, or another function is called."""
    stage.write(kernel_text(score))
    pid = os.fork()
    if not pid:
        real = getattr(owner, name)

        def struck(*arguments: object, **options: object) -> object:
            if state.known(History(stage.root).git, state.PENDING):
                os._exit(0)
            return real(*arguments, **options)

        setattr(owner, name, struck)
        try:
            stage.run("cut off")
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    left: dict[str, object] = stage.left(state.PENDING)
    return left


CUT_OFF = {
    "decided": (ledger, "write"),
    "written": (Refs, "point"),
    "pointed": (Refs, "move_branch"),
}
"""How far a turn had come that was cut off: to just before this is called."""


@pytest.mark.parametrize("way", ["reset --hard", "cut at a line", "emptied", "removed"])
@pytest.mark.parametrize("reached", CUT_OFF)
def test_a_row_of_a_run_that_was_cut_off_is_there_once_though_rows_were_lost_then(
    stage: Stage, reached: str, way: str
) -> None:
    stage.run("baseline")
    for score in (1500.0, 1400.0):
        stage.write(kernel_text(score))
        stage.run(f"{score}")
    before = stage.ledger.read_bytes()
    pending(stage, 1600.0, *CUT_OFF[reached])
    assert stage.ledger.read_bytes().startswith(before)
    LOST[way](stage)
    assert stage.ledger.exists() is (way != "removed")
    stage.write(kernel_text(1700.0))
    assert stage.run("again").decision == Decision.KEPT
    assert stage.ledger.read_bytes().startswith(before)
    decisions = [(row.decision, row.note) for row in stage.rows()]
    assert decisions[3:] == [("kept", "cut off"), ("kept", "again")]
    assert log.verify(stage.root) == ()


def test_a_commit_of_the_users_after_a_kill_is_not_lost(stage: Stage) -> None:
    stage.run("baseline")
    cut_off = pending(stage, 1500.0)
    stage.git("commit", "-q", "--allow-empty", "-m", "meanwhile")
    outcome = stage.run("again")
    decisions = [(row.decision, row.note) for row in stage.rows()]
    assert decisions[:3] == [("baseline", "baseline"), ("kept", "cut off"), ("judged", "cut off")]
    assert f"corrects row {cut_off['id']}" in stage.rows()[2].reason
    assert outcome.decision == Decision.KEPT
    assert stage.git("log", "--format=%s").splitlines() == ["again", "meanwhile", "first"]
    assert log.verify(stage.root) == ()


def test_a_branch_that_is_gone_after_a_kill(stage: Stage) -> None:
    stage.git("checkout", "-q", "-b", "side")
    stage.run("baseline")
    cut_off = pending(stage, 1500.0)
    stage.git("checkout", "-q", "main")
    stage.git("branch", "-q", "-D", "side")
    stage.ledger.unlink()
    said: list[str] = []
    outcome = stage.run("again", progress=said.append)
    assert [note for note in (*said, *outcome.notes) if "its branch is gone" in note] == said[:1], "once"
    assert stage.git("cat-file", "-t", f"refs/ratchet/rows/{cut_off['id']}") == "blob"


def test_a_locked_index_is_said_and_does_no_harm(stage: Stage) -> None:
    stage.run("baseline")
    stage.write(kernel_text(1500.0))
    (stage.root / ".git" / "index.lock").touch()
    outcome = stage.run("better")
    assert outcome.decision == Decision.KEPT
    assert any("git reset" in note for note in outcome.notes)
    (stage.root / ".git" / "index.lock").unlink()
    stage.git("reset", "-q", "--", "kernel.py", "results.tsv")
    assert stage.status() == [" M results.tsv"]
