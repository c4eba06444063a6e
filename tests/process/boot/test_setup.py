"""The private environment: made once, by one process, with words where it cannot be made.

The package installer is a stub on the PATH that records its calls. What it would fetch is tried by hand.
"""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest

from ratchet.process.boot import bootstrap
from tests.workspaces import HERE

UV = """#!/bin/sh
echo "$@" >> "$UV_CALLS"
while [ -n "$UV_WAITS_FOR" ] && [ ! -e "$UV_WAITS_FOR" ]; do sleep 0.05; done
[ -z "$UV_FAILS" ] || { echo "error: no route to the index" >&2; exit 2; }
"""
PROBE = """#!/usr/bin/env bash
set -eu
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
. "$root/environment.sh"
exec "$root/.venv/bin/python" -c 'import sys; print(sys.prefix)'
"""


class Tree:
    """The files that set-up needs, in a path with a space and a letter beyond ASCII."""

    def __init__(self, folder):
        self.root = folder / "a földer"
        self.calls = folder / "calls"
        self.calls.touch()
        boot = self.root / "ratchet" / "process" / "boot"
        boot.mkdir(parents=True)
        shutil.copy2(HERE / "environment.sh", self.root)
        shutil.copy2(HERE / "ratchet" / "process" / "boot" / "bootstrap.py", boot)
        (self.root / "requirements.lock").write_text("nothing==1\n")
        tools = folder / "tools"
        tools.mkdir()
        self.script(tools / "uv", UV)
        self.script(self.root / "probe.sh", PROBE)
        self.environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": str(folder),
            "UV_CALLS": str(self.calls),
            "RATCHET_PYTHON": sys.executable,
        }

    @staticmethod
    def script(path, text):
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(self, **more):
        return subprocess.Popen(
            [self.root / "probe.sh"],
            cwd="/",
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, **more):
        process = self.start(**more)
        out, err = process.communicate()
        return subprocess.CompletedProcess("probe", process.returncode, out, err)

    def syncs(self):
        return self.calls.read_text().splitlines()


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_the_environment_is_made_once_and_says_what_it_does(tree):
    first = tree.run()
    assert first.returncode == 0, first.stderr
    assert first.stdout.strip() == str(tree.root / ".venv")
    assert "set-up: making .venv" in first.stderr
    assert "set-up: installing the locked packages" in first.stderr
    (call,) = tree.syncs()
    assert call.startswith("pip sync ")
    assert "--require-hashes" in call
    assert call.endswith(str(tree.root / "requirements.lock"))
    again = tree.run()
    assert again.stdout == first.stdout
    assert again.stderr == ""
    assert len(tree.syncs()) == 1, "nothing is installed again"


def test_another_lock_installs_again(tree):
    tree.run()
    (tree.root / "requirements.lock").write_text("nothing==2\n")
    assert tree.run().returncode == 0
    assert len(tree.syncs()) == 2
    assert (tree.root / ".venv" / "requirements.lock").read_text() == "nothing==2\n"


def wait_for_the_installer(tree, process):
    while not tree.syncs():
        assert process.poll() is None
        time.sleep(0.05)


def test_two_at_once_make_it_once(tree):
    gate = tree.root / "gate"
    first = tree.start(UV_WAITS_FOR=str(gate))
    wait_for_the_installer(tree, first)
    second = tree.start(UV_WAITS_FOR=str(gate))
    assert "another process is making the environment" in second.stderr.readline()
    gate.touch()
    outputs = [process.communicate()[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert len(tree.syncs()) == 1
    assert outputs[0] == outputs[1]


def test_what_failed_is_reported_and_tried_again(tree):
    failed = tree.run(UV_FAILS="1")
    assert failed.returncode == bootstrap.FAILED
    assert "Is a package index reachable" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (tree.root / ".venv" / "requirements.lock").exists()
    assert tree.run().returncode == 0


def test_a_run_that_was_killed_is_finished_by_the_next(tree):
    process = tree.start(UV_WAITS_FOR=str(tree.root / "nothing"))
    wait_for_the_installer(tree, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tree.root / ".venv" / "requirements.lock").exists()
    assert tree.run().returncode == 0
    assert len(tree.syncs()) == 2


def test_no_python_that_is_new_enough(tree):
    done = tree.run(RATCHET_PYTHON="/bin/false")
    assert done.returncode == bootstrap.FAILED
    assert "no Python 3.11 or newer" in done.stderr
    assert "RATCHET_PYTHON" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not tree.syncs()


def test_a_python_in_a_path_with_a_space(tree):
    python = tree.root / "python"
    python.symlink_to(sys.executable)
    assert tree.run(RATCHET_PYTHON=str(python)).returncode == 0
    assert len(tree.syncs()) == 1


def test_a_folder_that_cannot_be_written(tree):
    if os.geteuid():
        tree.root.chmod(0o555)
    elif subprocess.run(["chattr", "+i", tree.root], check=False, capture_output=True).returncode:
        pytest.skip("root, on a file system without the immutable attribute")
    try:
        done = tree.run()
    finally:
        if os.geteuid():
            tree.root.chmod(0o755)
        else:
            subprocess.run(["chattr", "-i", tree.root], check=True)
    assert done.returncode == bootstrap.FAILED
    assert "Traceback" not in done.stderr
    assert str(tree.root) in done.stderr


def test_too_little_space_is_said_before_anything_is_fetched(tree, monkeypatch, capsys):
    usage = shutil.disk_usage(tree.root)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert bootstrap.main(tree.root / ".venv", tree.root / "requirements.lock") == bootstrap.FAILED
    assert "3 GiB free" in capsys.readouterr().err
    assert not (tree.root / ".venv").exists()


def test_a_platform_without_the_compiler_says_what_works(tree, monkeypatch, capfd):
    for name, value in tree.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bootstrap.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(bootstrap.platform, "machine", lambda: "arm64")
    assert bootstrap.main(tree.root / ".venv", tree.root / "requirements.lock") == 0
    outputs = capfd.readouterr().err
    assert "no build for Darwin arm64" in outputs
    assert "`log`, `show` and `verify` work" in outputs


@pytest.mark.parametrize("script", ["ratchet.sh", "test.sh"])
def test_the_commands_are_only_wiring(script):
    text = (HERE / script).read_text()
    assert '. "$root/environment.sh"' in text
    assert os.access(HERE / script, os.X_OK)
    assert subprocess.run(["bash", "-n", HERE / script], check=False).returncode == 0
    assert len(text.splitlines()) < 10


@pytest.mark.parametrize("script", ["ratchet.sh", "test.sh"])
def test_the_commands_find_their_own_folder_whatever_cdpath_says(tree, script):
    """``cd`` looks in CDPATH first, and says where it went, on standard output."""
    shutil.copy2(HERE / script, tree.root)
    other = tree.root.parent / "other" / tree.root.name
    other.mkdir(parents=True)
    done = subprocess.run(
        ["bash", f"{tree.root.name}/{script}"],
        cwd=tree.root.parent,
        env={**tree.environment, "CDPATH": str(other.parent), "UV_FAILS": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (tree.root / ".venv").is_dir(), done.stderr
    assert list(other.iterdir()) == []
