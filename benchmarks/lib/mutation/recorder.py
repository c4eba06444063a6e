"""Which lines each test runs: a plugin of pytest that counts the lines of some sources, in the test's own process.

What a fixture runs while it is set up counts for every test of the file: only the first of them sees it happen.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

Lines = dict[str, list[int]]
"""Line numbers by file."""


def processor_seconds() -> float:
    """What this process took of the processor so far, with its children that have ended."""
    return sum(os.times()[:4])


class Recorder:
    """Notes the lines of ``files`` that the tests of one process run, and what each test takes of the processor."""

    def __init__(self, files: Sequence[str]) -> None:
        root = Path.cwd()
        self._names = {str(root / file): file for file in files}
        self._current: dict[str, set[int]] = defaultdict(set)
        self._calls: dict[str, dict[str, set[int]]] = {}
        self._shared: dict[str, set[int]] = defaultdict(set)
        self._seconds: dict[str, float] = {}

    def tests(self) -> dict[str, dict[str, Any]]:
        """By test: its ``lines`` (:data:`Lines`) and its ``seconds``."""
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
