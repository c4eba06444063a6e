"""The steps of one verdict: timed, reported, and the first failure decides."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from ratchet.values import Step
from ratchet.values.status import Refusal, Status

T = TypeVar("T")


class Progress(Protocol):
    """Who is told while the judge works."""

    def step(self, name: str) -> None: ...
    def done(self, name: str, summary: str, seconds: float, ok: bool) -> None: ...


class Silent:
    """Tells nobody."""

    def step(self, name: str) -> None: ...
    def done(self, name: str, summary: str, seconds: float, ok: bool) -> None: ...


class Steps:
    """Runs the steps in order. A step whose needs are missing is left out; one that can run still runs."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._start = time.monotonic()
        self.steps: list[Step] = []
        self.status = Status.PASS
        self.reason = ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def note(self, text: str) -> None:
        """Say what the running step is doing."""
        self._progress.step(text)

    def run(self, name: str, function: Callable[..., tuple[T, str]], *needs: object) -> T | None:
        """Call ``function(*needs)``, which returns a value and a summary; None if it or a need failed."""
        if any(need is None for need in needs):
            return None
        self._progress.step(name)
        start = time.monotonic()
        try:
            value, summary = function(*needs)
        except Refusal as refusal:
            self._end(name, refusal.status, refusal.message, start)
            return None
        self._end(name, Status.PASS, summary, start)
        return value

    def _end(self, name: str, status: Status, summary: str, start: float) -> None:
        seconds = time.monotonic() - start
        self.steps.append(Step(name=name, status=status, seconds=seconds, summary=summary))
        if self.status is Status.PASS and status is not Status.PASS:
            self.status, self.reason = status, f"{name}: {summary}"
        self._progress.done(name, summary, seconds, status is Status.PASS)
