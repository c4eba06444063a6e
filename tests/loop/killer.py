"""Runs turns in child processes that are killed just before the n-th change they make to the disk, for every n.

Between two changes nothing durable happens, so these are all the instants there are. A write to the ledger is cut
in half as well. After each kill the turn is run again, as a user would, and what must hold is checked.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import git

from ratchet.commands.branches import merged
from ratchet.loop import ledger, log
from ratchet.loop.experiment import Idea
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, StageJudge, kernel_text

CHANGING = {"update-ref", "update-index", "read-tree", "commit-tree"}
"""Git's commands that leave more behind than an object nobody names."""


def arm(number: int, sent: signal.Signals) -> Callable[[], int]:
    """Sends ``sent`` to this process just before its ``number``-th change; returns a counter of changes."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return count == number

    def strike() -> None:
        os.kill(os.getpid(), sent)

    def before(function: Callable[..., Any], counts: Callable[..., bool] = lambda *_: True) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if counts(*arguments) and step():
                strike()
            return function(*arguments, **options)

        return wrapped

    def torn_write(descriptor: int, data: bytes) -> int:
        if step():
            strike()
        if step():
            real_write(descriptor, data[: len(data) // 2])
            strike()
            return real_write(descriptor, data[len(data) // 2 :]) + len(data) // 2
        return real_write(descriptor, data)

    real_write = os.write
    ledger.os = Proxy(os, write=torn_write)  # type: ignore[attr-defined]
    for name in ("replace", "unlink"):
        setattr(os, name, before(getattr(os, name)))
    execute = git.Git.execute
    git.Git.execute = before(execute, lambda _self, command, *_: bool(CHANGING & set(command)))  # type: ignore[method-assign]
    return lambda: count


class Proxy:
    def __init__(self, module: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def turn(stage: Stage) -> Status:
    try:
        return stage.run(idea=Idea(message="an idea", text=stage.given)).status
    except Refusal as refusal:
        return refusal.status


def merging(stage: Stage) -> Status:
    """The clone in the folder beside the stages comes in."""
    judge = StageJudge(stage)
    try:
        done, outcomes = merged(
            str(stage.root.parent / "theirs"), branch="", root=stage.root, judge=judge, wait_s=0, say=lambda _line: None
        )
    except Refusal as refusal:
        return refusal.status
    return Status.PASS if done.came or outcomes else Status.NO_CHANGE


def child(stage: Stage, number: int, sent: signal.Signals, act: Callable[[Stage], Status]) -> int:
    """The wait status of a turn that is struck at its ``number``-th change; exit code 7 if it had fewer."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        count = arm(number, sent)
        status = act(stage)
        os._exit(7 if count() < number else status.exit_code)
    except BaseException:
        traceback.print_exc()
    os._exit(99)


def sweep(
    template: Stage,
    folder: Path,
    sent: signal.Signals,
    check: Callable[[Stage, str], None],
    act: Callable[[Stage], Status] = turn,
) -> int:
    """Strikes at every change; returns how many there were."""
    number = 0
    while True:
        number += 1
        stage = Stage(root=folder / f"{number}", freezes=template.freezes, given=template.given)
        shutil.copytree(template.root, stage.root, symlinks=True)
        result = child(stage, number, sent, act)
        where = f"{sent.name} before change {number}"
        if os.WIFEXITED(result) and os.WEXITSTATUS(result) == 7:
            return number - 1
        if sent is signal.SIGKILL:
            assert os.WIFSIGNALED(result), f"{where}: exit code {os.WEXITSTATUS(result)}"
        else:
            assert os.WEXITSTATUS(result) in (0, 3, 130), f"{where}: exit code {os.WEXITSTATUS(result)}"
            untouched = stage.read() == template.read() and not {row.decision for row in stage.rows()} & {
                "kept",
                "reverted",
            }
            assert untouched == (os.WEXITSTATUS(result) == 130), f"{where}: exit code {os.WEXITSTATUS(result)}"
        assert (stage.root / "precious.txt").read_text() == "ignored and precious\n", where
        again = act(stage)
        assert again in (Status.PASS, Status.NOT_BETTER, Status.NO_CHANGE), f"{where}: then {again}"
        assert log.verify(stage.root) == (), f"{where}: {log.verify(stage.root)}"
        assert len({row.id for row in stage.rows()}) == len(stage.rows())
        assert not list((stage.root / ".git" / "ratchet").glob("*.json"))
        assert (stage.root / "other.txt").read_text() == "other\n"
        check(stage, where)
        shutil.rmtree(stage.root)


def kept(stage: Stage, where: str) -> None:
    assert [row.decision for row in stage.rows()] == ["baseline", "kept"], where
    assert stage.head() == stage.rows()[-1].commit, where
    assert stage.git("rev-list", "--count", "HEAD") == "2", where
    assert stage.read() == kernel_text(1500.0), where
    assert stage.status() == [" M results.tsv"], f"{where}: {stage.status()}"


placed = kept
"""The same, where the candidate comes as bytes: whatever is struck, the kernel file is HEAD's afterwards."""


def reverted(stage: Stage, where: str) -> None:
    assert [row.decision for row in stage.rows()] == ["baseline", "reverted"], where
    assert stage.git("rev-list", "--count", "HEAD") == "1", where
    assert stage.read() == kernel_text(1000.0), where
    assert stage.status() == ["?? results.tsv"], f"{where}: {stage.status()}"


def first_of_all(stage: Stage, where: str) -> None:
    assert [row.decision for row in stage.rows()] == ["baseline", "kept"], where
    assert stage.head() == stage.rows()[-1].commit, where
    assert stage.git("rev-parse", "HEAD~1") == stage.rows()[0].commit, where
    assert stage.git("rev-list", "--count", "HEAD") == "3", where
    assert stage.git("ls-files", stage.lock.name), where
    assert stage.status() == [" M results.tsv"], f"{where}: {stage.status()}"


def joined(stage: Stage, where: str) -> None:
    decisions = ["baseline", "kept", "kept", "reverted", "merged", "kept"]
    assert [row.decision for row in stage.rows()] == decisions, where
    assert stage.head() == stage.rows()[-1].commit, where
    assert stage.read() == kernel_text(1500.0), where
    assert stage.status() == [" M results.tsv"], f"{where}: {stage.status()}"
    assert stage.git("for-each-ref", "refs/ratchet/fetched") == "", where


def followed(stage: Stage, where: str) -> None:
    theirs = Stage(root=stage.root.parent / "theirs")
    assert stage.ledger.read_bytes() == theirs.ledger.read_bytes(), where
    assert (stage.head(), stage.read()) == (theirs.head(), theirs.read()), where
    assert stage.status() == [" M results.tsv"], f"{where}: {stage.status()}"
    assert stage.git("for-each-ref", "refs/ratchet/fetched") == "", where


def two_clones(template: Stage, folder: Path, scenario: str) -> None:
    """One that is ahead of the template, which has gone on itself where the two are to be joined."""
    theirs = Stage(root=folder / "theirs")
    shutil.copytree(template.root, theirs.root, symlinks=True)
    for score in (1500.0, 900.0):
        theirs.write(kernel_text(score))
        theirs.run(f"theirs: {score}")
    if scenario == "joined":
        template.write(kernel_text(1200.0))
        template.run("ours")


def main(scenario: str, sent: signal.Signals, folder: Path) -> None:
    os.fsync = lambda _: None  # processes are killed here, and no power is cut: what was written stays
    template = Stage.new(folder / "template")
    (template.root / ".gitignore").write_text("precious.txt\n")
    template.git("commit", "-q", "--amend", "--no-edit", "-a")
    (template.root / "precious.txt").write_text("ignored and precious\n")
    if scenario == "first_of_all":
        template.freezes = True
    else:
        template.run("baseline")
    if scenario in ("joined", "followed"):
        two_clones(template, folder, scenario)
        print(sweep(template, folder, sent, globals()[scenario], merging))
        return
    if scenario == "placed":
        template.given = kernel_text(1500.0).encode()
    else:
        template.write(kernel_text(900.0 if scenario == "reverted" else 1500.0))
    print(sweep(template, folder, sent, globals()[scenario]))


if __name__ == "__main__":
    main(sys.argv[1], signal.Signals[sys.argv[2]], Path(sys.argv[3]))
