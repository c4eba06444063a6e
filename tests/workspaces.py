"""Real repositories that hold a copy of this tree, and real runs of what a user calls in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ratchet.loop import ledger
from ratchet.values import Row
from tests.imports import HERE
from tests.kernels import ATTENTION

KEPT = ("prepare.py", "ratchet", "ratchet.sh", "test.sh", "environment.sh", "pyproject.toml", "requirements.lock")
"""What a workspace needs of the tree."""
BETTER = ("BQ = 128", "BQ = 256")
WORSE = ("BKV = 256", "BKV = 128")


@dataclass
class Workspace:
    """A repository under ``root``. Commands run from the folder above it."""

    root: Path

    @classmethod
    def new(cls, root: Path, kernel: str = ATTENTION) -> Workspace:
        """One commit: the tree's own files and a kernel, by default a small one. The environment is this one."""
        marked = Path(sys.prefix) / "requirements.lock"
        wanted = (HERE / "requirements.lock").read_bytes()
        same = marked.exists() and marked.read_bytes() == wanted
        assert same, "run the tests with ./test.sh, in its own environment"
        root.mkdir(parents=True)
        for name in (*KEPT, ".gitignore", ".gitattributes"):
            if (HERE / name).is_dir():
                shutil.copytree(HERE / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (HERE / name).exists():
                shutil.copy2(HERE / name, root / name)
        with (root / ".gitignore").open("a") as file:
            file.write("/.venv\n")  # the tree's own rule is for a folder, and here it is a link
        (root / ".venv").symlink_to(sys.prefix)
        (root / "kernel.py").write_text(kernel)
        space = cls(root=root)
        space.git("init", "-q", "-b", "main")
        space.git("config", "user.name", "A. User")
        space.git("config", "user.email", "user@example.invalid")
        space.git("add", ".")
        space.git("commit", "-q", "-m", "first")
        return space

    def copy(self, root: Path) -> Workspace:
        shutil.copytree(self.root, root, symlinks=True)
        return Workspace(root=root)

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True)
        return done.stdout.decode(errors="surrogateescape").removesuffix("\n")

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.root.parent,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def call(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*command, **environment)
        out, err = process.communicate()
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def ratchet(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """``./ratchet.sh`` from the folder above."""
        return self.call(str(self.root / "ratchet.sh"), *arguments, **environment)

    def prepare(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``python prepare.py`` from the folder above."""
        return self.call(str(self.root / ".venv" / "bin" / "python"), str(self.root / "prepare.py"), *arguments)

    def edit(self, *edits: tuple[str, str], name: str = "kernel.py") -> str:
        """Replace text in a file; returns what it held before."""
        before = (self.root / name).read_text()
        text = before
        for old, new in edits:
            assert old in text, f"nothing to replace: {old!r}"
            text = text.replace(old, new)
        (self.root / name).write_text(text)
        return before

    def read(self, name: str = "kernel.py") -> str:
        return (self.root / name).read_text()

    @property
    def ledger(self) -> Path:
        return self.root / ledger.NAME

    def rows(self) -> tuple[Row, ...]:
        return ledger.read(self.ledger)

    def state(self) -> dict[str, object]:
        """All that a refused or interrupted turn has to leave as it was."""
        return {
            "head": self.git("rev-parse", "HEAD"),
            "branch": self.git("symbolic-ref", "HEAD"),
            "status": self.git("status", "--porcelain"),
            "kernel": self.read(),
            "ledger": self.ledger.read_bytes() if self.ledger.exists() else None,
        }


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.splitlines()[-1]
