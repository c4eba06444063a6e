"""The steps of one verdict: timed, reported, and the first failure decides."""

from __future__ import annotations

import errno
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from ratchet.values import Step
from ratchet.values.status import Refusal, Status

T = TypeVar("T")

INTERNAL_ERROR = "internal-error.txt"
"""The evidence of a step that raised what no step may raise: its traceback."""


class Progress(Protocol):
    """What follows the judge's work."""

    def step(self, name: str) -> None: ...
    def done(self, name: str, summary: str, seconds: float, ok: bool) -> None: ...


class Silent:
    """A ``Progress`` that says nothing."""

    def step(self, name: str) -> None: ...
    def done(self, name: str, summary: str, seconds: float, ok: bool) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Pending(Generic[T]):
    """A step that was begun, and is done beside others: its work is a child's, for which a thread waits."""

    name: str
    start: float
    future: Future[tuple[T, str]]
    ended: Future[float]
    """When it was done."""

    def wait(self) -> None:
        """Wait until nothing of it is under way, whatever comes of it."""
        self.ended.result()

    def instead(self, refusal: Refusal) -> Pending[T]:
        """The same step with another outcome."""
        future: Future[tuple[T, str]] = Future()
        future.set_exception(refusal)
        return replace(self, future=future)


class Steps:
    """Runs the steps in order. A step whose needs are missing is left out; one that can run still runs.

    A step may begin before its turn, beside others. It counts where it ends, so the first failure in the order of
    the table decides, whichever was done first; values that were not worth their time are none.

    Whatever a step raises becomes its status: a refusal its own, trouble of the machine's ``NO_SPACE`` or
    ``INFRASTRUCTURE``, anything else ``INTERNAL``, with the traceback in ``internal_error``.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._start = time.monotonic()
        self.steps: list[Step] = []
        self.status = Status.PASS
        self.reason = ""
        self.internal_error = ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    @property
    def passed(self) -> bool:
        """Whether no step failed so far."""
        return self.status is Status.PASS

    def passing(self, value: T) -> T | None:
        """``value`` while no step failed, as a need of a step that is worth its time only then."""
        return value if self.passed else None

    def note(self, text: str) -> None:
        """Say what the running step is doing."""
        self._progress.step(text)

    def run(self, name: str, function: Callable[..., tuple[T, str]], *needs: object, **settings: object) -> T | None:
        """Call ``function(*needs, **settings)``, which returns a value and a summary.

        None if it failed, or if a need is None: then it is left out. Settings may be None.
        """
        if any(need is None for need in needs):
            return None
        self._progress.step(name)
        return self._ended(name, lambda: function(*needs, **settings), time.monotonic())

    def begin(
        self, name: str, function: Callable[..., tuple[T, str]], *needs: object, **settings: object
    ) -> Pending[T] | None:
        """As ``run``, beside the steps that follow. It ends where ``end`` is called."""
        if any(need is None for need in needs):
            return None
        future: Future[tuple[T, str]] = Future()
        ended: Future[float] = Future()
        start = time.monotonic()  # before the thread's first step, or a quick one would take less than nothing

        def work() -> None:
            try:
                future.set_result(function(*needs, **settings))
            except BaseException as error:  # raised where the step ends
                future.set_exception(error)
            ended.set_result(time.monotonic())

        threading.Thread(target=work, name=name, daemon=True).start()
        return Pending(name=name, start=start, future=future, ended=ended)

    def peek(self, pending: Pending[T] | None) -> T | None:
        """The value of a step before its turn; None if it failed."""
        if pending is None or pending.future.exception() is not None:
            return None
        return pending.future.result()[0]

    def end(self, pending: Pending[T] | None) -> T | None:
        """The value of a step that was begun, as ``run`` returns it."""
        if pending is None:
            return None
        self._progress.step(pending.name)
        return self._ended(pending.name, pending.future.result, pending.start, pending.ended)

    def _ended(
        self, name: str, result: Callable[[], tuple[T, str]], start: float, ended: Future[float] | None = None
    ) -> T | None:
        value, failure, summary = None, Status.PASS, ""
        try:
            value, summary = result()
        except Refusal as refusal:
            failure, summary = refusal.status, refusal.message
        except OSError as error:
            trouble = machine_trouble(error)
            failure, summary = trouble.status, trouble.message
        except Exception as error:
            self.internal_error += f"{name}\n{traceback.format_exc()}\n"
            failure, summary = Status.INTERNAL, internal(error)
        self._end(name, failure, summary, (ended.result() if ended else time.monotonic()) - start)
        return value

    def _end(self, name: str, status: Status, summary: str, seconds: float) -> None:
        self.steps.append(Step(name=name, status=status, seconds=seconds, summary=summary))
        if self.status in (Status.PASS, Status.UNCHECKED) and status is not Status.PASS:  # values that nobody asked for
            self.status, self.reason = status, f"{name}: {summary}"
        self._progress.done(name, summary, seconds, status in (Status.PASS, Status.UNCHECKED))


def machine_trouble(error: OSError) -> Refusal:
    """What an error of the operating system is to a user."""
    no_space = error.errno in (errno.ENOSPC, errno.EDQUOT)
    where = f" ({error.filename})" if error.filename else ""
    message = f"{error.strerror or error}{where}: free or repair that and run again"
    return Refusal(Status.NO_SPACE if no_space else Status.INFRASTRUCTURE, message)


def internal(error: Exception) -> str:
    """An unexpected exception in one line."""
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {first:.300}; the traceback is in the evidence, {INTERNAL_ERROR}"
