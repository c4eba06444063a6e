"""A search with the real judge, killed twice: it goes on, and ends where one ends that nobody killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.extras import needs
from tests.search.nodes import free_port, kill
from tests.workspaces import Workspace

pytestmark = needs("optuna")

COMMAND = ("search", "--how", "neighbours", "--budget", "7", "--knob", "BQ=64,128,256", "--knob", "BKV=128,256,512")


def killed_with(space: Workspace, rows: int, *command: str) -> None:
    """Start a command and kill it, without a warning, once the ledger has so many rows."""
    process = space.start(str(space.root / "ratchet.sh"), *command)
    while len(space.rows()) < rows:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@contextmanager
def started(space: Workspace, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A node that runs. Ray gives itself up after 30 s, which on a busy machine may be too early."""
    said = ""
    for _ in range(5):
        process = space.start(str(space.root / "ratchet.sh"), *words)
        try:
            assert process.stdout is not None
            if any("Ray runtime started" in line for line in process.stdout):
                yield process
                return
            said = process.communicate()[1]
        finally:
            kill(process)
    raise AssertionError(f"no node started: {said}")


def ended(space: Workspace) -> tuple[list[tuple[str, ...]], str]:
    """What a search came to: of each trial what was tried and how it ended, and the kernel that is HEAD's."""
    rows = [(row.note, row.status, row.median_ms, row.vmem_bytes, row.decision) for row in space.rows()]
    return rows, space.git("show", "HEAD:kernel.py")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Workspace]:
    """A workspace with a baseline, and one that went on from it with a search that nobody killed."""
    begun = Workspace.new(tmp_path_factory.mktemp("killed") / "begun")
    assert begun.ratchet("baseline").returncode == 0
    made = begun.copy(begun.root.with_name("whole"))
    assert made.ratchet(*COMMAND).returncode == 0
    return begun, made


@pytest.mark.slow  # 14 trials with the real compiler
def test_killed_twice_with_the_real_judge(whole: tuple[Workspace, Workspace], tmp_path: Path) -> None:
    begun, expected = whole
    space = begun.copy(tmp_path / "killed")
    for rows in (3, 6):
        killed_with(space, rows, *COMMAND)
    done = space.ratchet(*COMMAND)
    assert done.returncode == 0, done.stderr
    assert ended(space) == ended(expected)
    assert len({row.kernel_blob for row in space.rows()}) == len(space.rows())
    assert space.ratchet("verify").returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_nodes_of_which_one_is_killed(whole: tuple[Workspace, Workspace], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    begun, expected = whole
    space, port = begun.copy(tmp_path / "three"), str(free_port())
    with (
        TemporaryDirectory(
            prefix="r-", dir="/tmp", ignore_cleanup_errors=True
        ) as folder,  # for the length of sockets' names
        started(space, "node", "--port", port, "--lanes", "1", "--folder", folder),
        started(space, "node", f"127.0.0.1:{port}", "--lanes", "1") as second,
        started(space, "node", f"127.0.0.1:{port}", "--lanes", "1"),
    ):
        process = space.start(str(space.root / "ratchet.sh"), *COMMAND, "--cluster", f"127.0.0.1:{port}")
        assert process.stderr is not None
        assert any("lanes that model: 3, on nodes: 3" in line for line in process.stderr)
        while len(space.rows()) < 3:
            assert process.poll() is None
            time.sleep(0.05)
        kill(second)
        _, said = process.communicate()
        assert process.returncode == 0, said
    assert ended(space) == ended(expected)
    assert len({row.kernel_blob for row in space.rows()}) == len(space.rows())
    assert space.ratchet("verify").returncode == 0
