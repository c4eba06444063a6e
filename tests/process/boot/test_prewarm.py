"""What is done for a new environment before its first verdict."""

import subprocess
import sys
from pathlib import Path

from ratchet.process.boot import bootstrap, bytecode, children, home, installed, prewarm
from tests.workspaces import HERE


def test_packages_are_compiled_while_a_fork_reads_them(monkeypatch):
    done = []
    monkeypatch.setattr(bytecode, "fill", lambda packages: done.append(("fill", packages)))
    for name in ("begin", "digest"):
        monkeypatch.setattr(installed, name, lambda folder, name=name: done.append((name, folder)))
    assert prewarm.main() == 0
    folders = children.packages()
    paths = [Path(folder) for folder in folders]
    begun, ended = [("begin", path) for path in paths], [("digest", path) for path in paths]
    assert done == [*begun, ("fill", folders), *ended]


def test_set_up_runs_it_by_the_judges_start(monkeypatch):
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    bootstrap.prewarm(HERE / ".venv")
    ((python, *flags, start, entry),) = ran
    assert Path(python) == (HERE / ".venv" / "bin" / "python").resolve()
    assert (flags, start, entry) == (["-I", "-S"], str(home.START), "prewarm")


def test_the_start_knows_it():
    python = Path(sys.executable).resolve()
    start = home.START
    done = subprocess.run([python, "-I", "-S", start, "prewarm"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert bytecode.is_filled(children.packages())
