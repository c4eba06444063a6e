"""The values child, asked for one thing at a time."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ratchet.exam.judge import secret
from ratchet.exam.judge.requests import RequestFile, ValuesRequest
from ratchet.exam.judge.responses import answer_in
from ratchet.exam.problem import array_file, reference_store, rows
from ratchet.exam.problem.problem import Problem, encode
from ratchet.process import paths
from ratchet.process.sandbox.child import Child, Limits, Walls
from ratchet.process.sandbox.warm import Warm
from ratchet.values import encoding
from ratchet.values.records import Record
from ratchet.values.status import Refusal, Status

LIMITS = Limits(seconds=900, memory_bytes=20 << 30)
WORKER = "ratchet.exam.judge.values_worker"
VIRTUAL_DEVICES = 8
"""CPU devices of the values child: a program on several chips is executed on as many of them."""
_PATIENT = f"--xla_cpu_collective_call_terminate_timeout_seconds={LIMITS.seconds:.0f}"
"""Devices wait for each other where they send and receive, by default 40 s at most."""


def start(workdir: Path, warm: Warm | None = None) -> Child:
    """Start a values child; it answers any number of requests."""
    return Child(
        WORKER,
        directory=workdir,
        environment={"XLA_FLAGS": f"--xla_force_host_platform_device_count={VIRTUAL_DEVICES} {_PATIENT}"},
        walls=Walls(readable=(workdir.parent.resolve(),)),
        warm=warm,
    )


class Workers(Protocol):
    """What is needed of ``ratchet.exam.judge.workers.Workers``."""

    @property
    def values(self) -> Child: ...
    @property
    def asking(self) -> threading.Lock: ...
    def cancel_values(self) -> None: ...
    def folder(self, name: str) -> Path: ...


@dataclass(kw_only=True)
class Asking:
    """One request at a time, from any thread of any verdict with these workers: what an earlier one began may go on.

    The child gets the problem, the clone's secret and cached references.
    """

    workers: Workers
    root: Path
    limits: Limits
    _stopped: bool = False

    def folder(self) -> Path:
        """A new folder that the child can write."""
        return self.workers.values.request()

    def has_reference(self, problem: Problem, kind: str, *, whole: bool = False) -> bool:
        """Whether the reference of an instance is cached; ``whole``: of all rows."""
        name = rows.file_name(problem, kind, whole=whole)
        with self.workers.asking:
            return paths.is_file(array_file.path_of(self._lend(problem), name))

    def ask(self, problem: Problem, request: ValuesRequest) -> Record:
        """The child's answer, whatever its status. References that it made are kept.

        Raises:
          Refusal: ``CANNOT_VERIFY`` where there is no answer; as ``reference_store.collect``.
        """
        with self.workers.asking:
            child, lent = self.workers.values, self._lend(problem)
            if self._stopped:  # asked once there is a child that ``stopped`` would have cancelled
                raise _refusal("was stopped")
            folder = child.request()
            lock = folder / "problem.lock.json"
            paths.write(lock, encode(problem))
            asked = RequestFile(lock=lock, secret=secret.secret_of(self.root).hex(), cache=lent, request=request)
            paths.write(folder / "request.json", json.dumps(encoding.encode(asked)).encode())
            ending = child.ask(folder, self.limits)
            reference_store.collect(lent, self._kept(problem))
        if ending.how != "answered":
            why = {
                "died": f"died: {ending.last:.300}",
                "timeout": f"did not finish in {self.limits.seconds:.0f} s",
                "memory": f"used more than {self.limits.memory_bytes >> 30} GiB",
                "disk": "wrote more than it may",
                "cancelled": "was stopped",
            }
            raise _refusal(why[ending.how])
        return answer_in(folder / "answer.json")

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """End what the child is doing, and refuse what is asked meanwhile. From another thread than asks."""
        self._stopped = True
        self.workers.cancel_values()
        try:
            yield
        finally:
            self._stopped = False

    def _kept(self, problem: Problem) -> Path:
        return reference_store.folder_of(problem, secret.clone_folder(self.root), secret.secret_of(self.root))

    def _lend(self, problem: Problem) -> Path:
        """The references that are cached and were made here, where the child can read them."""
        return reference_store.lend(self._kept(problem), self.workers.values.directory / "references")


def _refusal(why: str) -> Refusal:
    return Refusal(Status.CANNOT_VERIFY, f"executing the kernel for its values {why}")
