"""What is installed beside the judge: looked at by a fork of a process that has one thread."""

import subprocess
import sys

import pytest

from tests.workspaces import HERE

FORKED = """
import os, signal, sys
from pathlib import Path
from ratchet.process.boot import installed

folder, how = Path(sys.argv[1]), sys.argv[2]
alone, here, found, asked = installed.digest(folder), os.getpid(), installed._digest, []

def here_or_in_the_fork(folder):
    if os.getpid() == here:
        asked.append(folder)
        return found(folder)
    if how == "wrong":
        raise OSError("nothing can be read")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return found(folder)

if how == "late":
    installed.RECENT_S = 0.0
installed._digest = here_or_in_the_fork
installed.begin(folder)
forked = installed.digest(folder)
try:
    left = os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    left = None
print(forked == alone, len(asked), left)
(folder / "one.py").write_text("a = 2")
installed.begin(folder)
print(installed.digest(folder) != alone)
"""


@pytest.fixture
def packages(tmp_path):
    (tmp_path / "one.py").write_text("a = 1\n")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "three.so").write_bytes(bytes(100))
    return tmp_path


@pytest.mark.parametrize(("how", "asked_here"), [("well", 0), ("wrong", 1), ("killed", 1), ("late", 1)])
def test_a_fork_finds_the_same_and_what_it_cannot_say_is_found_here(packages, how, asked_here):
    command = [sys.executable, "-c", FORKED, packages, how]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
    assert done.stdout == f"True {asked_here} None\nTrue\n"
    assert done.stderr == ""
