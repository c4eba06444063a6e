"""A search with the real judge, killed twice: it goes on, and ends where one ends that nobody killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.workspaces import Workspace

pytest.importorskip("optuna")

COMMAND = ("search", "--how", "neighbours", "--budget", "7", "--knob", "BQ=64,128,256", "--knob", "BKV=128,256,512")


def killed_with(space: Workspace, rows: int, *command: str) -> None:
    """Start a command and kill it, without a warning, once the ledger has so many rows."""
    process = space.start(str(space.root / "ratchet.sh"), *command)
    while len(space.rows()) < rows:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def ended(space: Workspace) -> tuple[list[tuple[str, ...]], str]:
    """What a search came to: of each trial what was tried and how it ended, and the kernel that is HEAD's."""
    rows = [(row.note, row.status, row.median_ms, row.vmem_bytes, row.decision) for row in space.rows()]
    return rows, space.git("show", "HEAD:kernel.py")


@pytest.mark.slow  # 14 trials with the real compiler
def test_killed_twice_with_the_real_judge(tmp_path: Path) -> None:
    whole = Workspace.new(tmp_path / "whole")
    assert whole.ratchet("baseline").returncode == 0
    space = whole.copy(tmp_path / "killed")
    assert whole.ratchet(*COMMAND).returncode == 0
    for rows in (3, 6):
        killed_with(space, rows, *COMMAND)
    assert space.ratchet(*COMMAND).returncode == 0
    assert ended(space) == ended(whole)
    assert len({row.kernel_blob for row in space.rows()}) == len(space.rows())
    assert space.ratchet("verify").returncode == 0
