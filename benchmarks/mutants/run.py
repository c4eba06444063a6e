"""Mutants run: each in a copy of the tree, by the tests of its room, away from all other processes of the machine."""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants import server
from benchmarks.mutants.mutator import Mutant
from benchmarks.mutants.reach import Ran

TREE = Path(__file__).resolve().parents[2]
KEPT = TREE / ".ratchet" / "mutants"
"""Which lines the tests run."""
COMPILED = KEPT / "compiled"
"""What XLA compiled for the tests: most of it is the same for every fault."""
PATIENCE, SLACK_SECONDS, CLOCK = 3, 20.0, 10
"""How many times what the tests take on the sound tree, and how much more, they may take of the processor; by the
clock, as the machine may be busy, ``CLOCK`` times that."""
CACHE = {
    "JAX_COMPILATION_CACHE_DIR": str(COMPILED),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
ALONE = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child")
"""A mutant of the jail may kill what it should not: it sees no process but its own."""
NO_TESTS = (4, 5)
"""Exit codes of pytest: wrong usage, nothing collected."""
OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the tests said of a mutant."""

    by: str = ""
    """``a test``, ``the deadline``, or ``""`` where it survived."""
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        return bool(self.by)


class Copy:
    """A copy of the tree in a temporary folder, and the process that runs its tests. Both end with it."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mutants-")) / "tree"
        self.root.parent.chmod(0o755)  # some tests become another user
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

    def run(self, tests: Sequence[str], expected: float, files: Sequence[str] | None = None) -> Outcome:
        """Run tests in the copy as it is, up to the first that fails.

        Args:
            tests: as pytest names them.
            expected: seconds of the processor that they take.
            files: whose lines are noted, see :meth:`ran`.

        Raises:
            RuntimeError: for tests that cannot be run at all.
        """
        start = time.monotonic()
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        processor = int(PATIENCE * expected + SLACK_SECONDS)
        process.stdin.write(json.dumps({"tests": tests, "seconds": processor, "files": files}) + "\n")
        process.stdin.flush()
        answered, _, _ = select.select([process.stdout], [], [], CLOCK * processor)
        if not answered:
            self._end()
            return Outcome(by="the deadline", seconds=time.monotonic() - start)
        code = int(process.stdout.readline() or "-1")
        if process.poll() is not None:
            self._end()
        if code in NO_TESTS:
            whole = tuple(dict.fromkeys(test.partition("::")[0] for test in tests))
            if whole != tuple(tests):  # a fault may change what tests are called
                return self.run(whole, 10 * expected, files)
            raise RuntimeError(f"pytest ended with {code}: {self.log()}")
        by = "the deadline" if code in OUT_OF_TIME else "a test" if code else ""
        return Outcome(by=by, seconds=time.monotonic() - start)

    def log(self) -> str:
        """The end of what pytest printed in the last run."""
        return (self.root / "tests.log").read_text(errors="replace")[-2000:]

    def ran(self, file: str, sources: Sequence[str]) -> tuple[Ran, ...]:
        """What each test of a file, or one of them, runs of some sources: kept until the file or the sources change.

        Raises:
            RuntimeError: if a test fails without any fault.
        """
        whole = hashlib.sha256(f"{file}\0".encode())
        for name in (file.partition("::")[0], *sources):
            whole.update(f"{name}\0{self.source(name)}\0".encode())
        kept = KEPT / f"{whole.hexdigest()[:32]}.json"
        if not kept.exists():
            if self.run([file], 600, sources).killed:
                raise RuntimeError(f"the tests of {file} fail without any fault: {self.log()}")
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.root / "ran.json", kept)
        return Ran.read(json.loads(kept.read_text()))

    def tried(self, mutant: Mutant, tests: Sequence[str], expected: float) -> Outcome:
        """Run tests with one fault in the copy, and take it out again. What makes them unreadable is noticed."""
        path, source = self.root / mutant.file, self.source(mutant.file)
        path.write_text(mutant.applied(source))
        try:
            return self.run(tests, expected)
        except RuntimeError:
            return Outcome(by="a test")
        finally:
            path.write_text(source)

    def _started(self) -> subprocess.Popen[str]:
        if self._server is None:
            self._server = subprocess.Popen(
                [*ALONE, sys.executable, str(Path(server.__file__))],
                cwd=self.root,
                env={**os.environ, **CACHE, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(self.root.parent)},
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

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        shutil.rmtree(self.root.parent, ignore_errors=True)
