"""This program's own command line, as processes: an experiment that an agent asks for is an experiment like any.

What takes longer than a client waits is a job: started, looked at and cancelled by number, a process in a session of
its own. What it prints to standard error is its progress.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ratchet.process.boot import home
from ratchet.values.status import Refusal, Status

GRACE_S = 20.0
"""How long an interrupted turn has to end as it should, before it is killed."""
_KEPT_LINES = 200
_KEPT_JOBS = 100
_OUTPUT_BYTES = 64 << 20

RUNNING, DONE, CANCELLED = "running", "done", "cancelled"


def command() -> tuple[str, ...]:
    """What starts the command line, as ``ratchet.sh`` and the installed ``ratchet`` do; arguments follow."""
    return (sys.executable, "-I", "-S", str(home.START), "ratchet")


def experiment(message: str, *, kernel: str, wait_s: float = 0) -> tuple[str, ...]:
    """Arguments of one experiment; the message is data, whatever it begins with."""
    return ("run", "--json", "--kernel", kernel, "--wait", str(wait_s), "--", message)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a run of the command line ended."""

    exit_code: int
    output: str

    @property
    def document(self) -> dict[str, Any] | None:
        """The JSON document that it printed; None where it printed none."""
        try:
            document = json.loads(self.output)
        except ValueError:
            return None
        return document if isinstance(document, dict) else None


@dataclass(eq=False)
class Job:
    """One run of the command line. ``changed`` is notified when a line or its end comes."""

    number: int
    kind: str
    alone: bool
    process: subprocess.Popen[str]
    finish: Callable[[Answer], object]
    state: str = RUNNING
    answer: Answer | None = None
    lines: list[str] = field(default_factory=list)
    """The last of its progress: untrusted text."""
    said: int = 0
    """How many lines it said in all."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    cancelled: bool = False

    def wait(self, seconds: float, *, said: int | None = None) -> None:
        """Until it ended, or has said more than ``said`` lines, or the time is up."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.state != RUNNING or (said is not None and self.said > said), timeout=max(0.0, seconds)
            )

    def cancel(self) -> None:
        """Interrupt it as Ctrl-C does, and kill it if it does not end. Returns when it ended."""
        with self.changed:
            if self.state != RUNNING:
                return
            self.cancelled = True
        self._signal(signal.SIGINT)
        self.wait(GRACE_S)
        if self.state == RUNNING:
            self._signal(signal.SIGKILL)
            self.wait(GRACE_S)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Jobs:
    """The jobs of one server."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._lock = threading.Lock()
        self._last = 0

    def start(
        self,
        kind: str,
        arguments: Sequence[str],
        *,
        cwd: Path,
        alone: bool = False,
        begin: Callable[[], None] = lambda: None,
        finish: Callable[[Answer], object] = lambda _answer: None,
    ) -> Job:
        """Start the command line with these arguments.

        Args:
            alone: refuse while another job that was started so is running: there is one kernel file.
            begin: called just before it starts.
            finish: called with its answer before its state says that it ended.

        Raises:
            Refusal: BUSY, and what ``begin`` raises.
        """
        with self._lock:
            if alone and (busy := next((job for job in self._jobs.values() if job.alone and not job.answer), None)):
                what = f"job {busy.number}, {busy.kind}, is under way, and there is one kernel file"
                raise Refusal(Status.BUSY, f"{what}: poll or cancel it first")
            begin()
            output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - the watcher closes it
            process = subprocess.Popen(
                [*command(), *arguments],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._last += 1
            job = Job(number=self._last, kind=kind, alone=alone, process=process, finish=finish)
            self._jobs[job.number] = job
            for old in list(self._jobs)[:-_KEPT_JOBS]:
                if self._jobs[old].answer:
                    del self._jobs[old]
        threading.Thread(target=_watch, args=(job, output), daemon=True).start()
        return job

    def find(self, number: int) -> Job:
        """Raises:
        Refusal: NOT_FOUND.
        """
        if number not in self._jobs:
            raise Refusal(Status.NOT_FOUND, f"there is no job {number}: `jobs` lists them")
        return self._jobs[number]

    def all(self) -> tuple[Job, ...]:
        """All jobs that are known, oldest first."""
        with self._lock:
            return tuple(self._jobs.values())

    def close(self) -> None:
        """Cancel what is running, and wait for it."""
        for job in self.all():
            job.cancel()


def _watch(job: Job, output: IO[str]) -> None:
    assert job.process.stderr is not None
    for line in job.process.stderr:
        with job.changed:
            job.lines = [*job.lines[-_KEPT_LINES:], line.rstrip("\n")]
            job.said += 1
            job.changed.notify_all()
    code = job.process.wait()
    output.seek(0)
    answer = Answer(exit_code=code, output=output.read(_OUTPUT_BYTES))
    output.close()
    try:
        job.finish(answer)
    finally:
        with job.changed:
            job.answer = answer
            job.state = CANCELLED if job.cancelled and code else DONE
            job.changed.notify_all()
