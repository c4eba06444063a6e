"""Runs tests on request in a fork of itself, so that only the first of many runs waits for the libraries.

Reads JSON lines from standard input: ``tests``, the ``seconds`` of processor time they may take, and ``files`` whose
lines are noted in ``ran.json`` (see :class:`Recorder`) or null. Answers each with pytest's exit code. What the tree
itself holds is imported by the fork alone: it is what changes from run to run.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

LIBRARIES = ("numpy", "ml_dtypes", "jax", "jax.numpy", "jax.experimental.pallas.tpu", "hypothesis")
QUIET = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")


def run(tests: Sequence[str], seconds: int, files: Sequence[str] | None) -> int:
    """pytest's exit code, from a process of its own."""
    process = os.fork()
    if not process:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        log = os.open("tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        code = 3
        try:
            code = _run_here(tests, files)
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def _run_here(tests: Sequence[str], files: Sequence[str] | None) -> int:
    if files is None:
        return int(pytest.main([*QUIET, *tests]))
    recorder = Recorder(files)
    code = int(pytest.main([*QUIET, *tests], plugins=[recorder]))
    Path("ran.json").write_text(json.dumps(recorder.tests()))
    return code


def processor_seconds() -> float:
    """What this process took of the processor so far, with its children that have ended."""
    return sum(os.times()[:4])


class Recorder:
    """A plugin of pytest: notes the lines of ``files`` that each test runs, in its process, and what it takes of it.

    What a fixture runs while it is set up counts for every test of the file: only the first of them sees it happen.
    """

    def __init__(self, files: Sequence[str]) -> None:
        root = Path.cwd()
        self._names = {str(root / file): file for file in files}
        self._current: dict[str, set[int]] = defaultdict(set)
        self._calls: dict[str, dict[str, set[int]]] = {}
        self._shared: dict[str, set[int]] = defaultdict(set)
        self._seconds: dict[str, float] = {}

    def tests(self) -> dict[str, dict[str, Any]]:
        """By test: its ``lines`` by file and its ``seconds``."""
        return {
            test: {
                "lines": {file: sorted(own[file] | self._shared[file]) for file in {*own, *self._shared}},
                "seconds": self._seconds[test],
            }
            for test, own in self._calls.items()
        }

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        start = processor_seconds()
        sys.settrace(self._entered)
        threading.settrace(self._entered)
        self._current = defaultdict(set)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self._calls[item.nodeid] = self._current
            self._seconds[item.nodeid] = processor_seconds() - start

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        own, self._current = self._current, self._shared
        try:
            return (yield)
        finally:
            self._current = own

    def _entered(self, frame: FrameType, _event: str, _: object) -> Callable[..., Any] | None:
        """Only code of the sources is traced line by line."""
        file = self._names.get(frame.f_code.co_filename)
        if file is None:
            return None
        # A frame may outlive the test that entered it (a generator): it counts for that one.
        lines = self._current[file]

        def line(inner: FrameType, event: str, _: object) -> Callable[..., Any]:
            if event == "line":
                lines.add(inner.f_lineno)
            return line

        return line


if __name__ == "__main__":
    for library in LIBRARIES:
        __import__(library)
    import hypothesis

    # A busy machine must not look like a test that notices, nor a lucky draw like a good test.
    hypothesis.settings.register_profile("mutants", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("mutants")
    sys.path[0] = os.getcwd()  # in the place of this file's folder
    for line in sys.stdin:
        print(run(**json.loads(line)), flush=True)
