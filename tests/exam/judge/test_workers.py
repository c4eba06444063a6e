"""What a judge leaves in the folder for temporary files."""

import fcntl
import os
from pathlib import Path

import pytest

from ratchet.exam.judge.workers import Workers
from ratchet.process.sandbox.folder import LEASE, sweep
from ratchet.tpu.chips import V5E
from ratchet.values.status import Refusal, Status


def folder(parent: Path, name: str) -> Path:
    made = parent / name
    (made / "0000-program").mkdir(parents=True)
    (made / "0000-program" / "text").write_text("a dump")
    (made / LEASE).touch()
    return made


def test_what_a_killed_judge_left_is_removed_and_what_one_holds_stays(tmp_path: Path) -> None:
    killed, alive, other = (folder(tmp_path, name) for name in ("ratchet-a", "ratchet-b", "other"))
    new = tmp_path / "ratchet-c"  # its judge has only just begun
    new.mkdir()
    elsewhere = folder(tmp_path / "elsewhere", "ratchet-d")
    (tmp_path / "ratchet-link").symlink_to(elsewhere)
    os.mkfifo(tmp_path / "ratchet-pipe")
    with (alive / LEASE).open() as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        sweep(tmp_path)
        assert not killed.exists()
        assert all(path.exists() for path in (alive, other, new, elsewhere))
    sweep(tmp_path)
    assert not alive.exists()


def test_closed_workers_start_no_child() -> None:
    workers = Workers(V5E, compiles=False, one_file=True)
    workers.close()
    with pytest.raises(Refusal) as refused:
        _ = workers.values
    assert refused.value.status is Status.INTERRUPTED
    workers.close()
    assert not workers.root.exists()
