"""Mutants run: each in a copy of the tree, by the tests of its room, away from all other processes of the machine."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lib.mutation import server
from benchmarks.lib.mutation.mutator import Mutant

TREE = Path(__file__).resolve().parents[3]
SLACK_SECONDS = 60.0
"""What a run may take beyond three times that of the sound tree: the machine may be busy."""
ALONE = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child")
"""A mutant of the jail may kill what it should not: it sees no process but its own."""
NO_TESTS = (4, 5)
"""Exit codes of pytest: wrong usage, nothing collected."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the tests said of a mutant."""

    killed: bool
    by: str
    """``a test``, ``the deadline``, or ``""``."""
    seconds: float


class Copy:
    """A copy of the tree in a temporary folder, and the process that runs its tests. Both end with it."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mutants-")) / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=TREE, check=True, capture_output=True,
        ).stdout.decode()  # fmt: skip
        for name in filter(None, listed.split("\0")):
            if (TREE / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(TREE / name, self.root / name)
        (self.root / ".venv").symlink_to(sys.prefix)
        self._server: subprocess.Popen[str] | None = None

    def source(self, file: str) -> str:
        """The text of a file."""
        return (self.root / file).read_text()

    def run(self, tests: tuple[str, ...], seconds: float) -> Outcome:
        """Run tests in the copy as it is, up to the first that fails.

        Raises:
            RuntimeError: for tests that cannot be run at all.
        """
        start = time.monotonic()
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\t".join(tests) + "\n")
        process.stdin.flush()
        answered, _, _ = select.select([process.stdout], [], [], seconds)
        if not answered:
            self._end()
            return Outcome(killed=True, by="the deadline", seconds=time.monotonic() - start)
        code = int(process.stdout.readline() or "-1")
        if code in NO_TESTS:
            raise RuntimeError(f"pytest ended with {code}: {(self.root / 'tests.log').read_text()[-2000:]}")
        if process.poll() is not None:
            self._end()
        return Outcome(killed=code != 0, by="a test" if code else "", seconds=time.monotonic() - start)

    def tried(self, mutant: Mutant, tests: tuple[str, ...], seconds: float) -> Outcome:
        """Run tests with one fault in the copy, and take it out again."""
        path, source = self.root / mutant.file, self.source(mutant.file)
        path.write_text(mutant.applied(source))
        try:
            return self.run(tests, seconds)
        finally:
            path.write_text(source)

    def _started(self) -> subprocess.Popen[str]:
        if self._server is None:
            self._server = subprocess.Popen(
                [*ALONE, sys.executable, str(Path(server.__file__))],
                cwd=self.root,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(self.root.parent)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        return self._server

    def _end(self) -> None:
        """End the server: with it, the first process of its namespace, everything in that ends."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.communicate()
            self._server = None

    def close(self) -> None:
        """End the tests and remove the copy."""
        self._end()
        shutil.rmtree(self.root.parent, ignore_errors=True)

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
