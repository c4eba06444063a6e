"""Child processes that may hang, crash or eat the memory without taking the judge with them.

A child runs in its own process group and working directory, with a scrubbed environment. It imports
what it needs, then answers requests: the parent writes one line (a directory) to its standard input,
the child works in that directory and answers with one line. Everything else a child prints goes to
``output`` files that are only ever shown, never parsed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.05
TAIL_BYTES = 4000

PACKAGE_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a child may use. Exceeding a limit is an outcome, not an error of the judge."""

    seconds: float
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a request ended: ``answered``, ``timeout``, ``memory``, or ``died``."""

    how: str
    answer: str
    """The child's one line, or ``""``."""
    returncode: int | None
    """Exit code, negative for a signal; None while the child lives."""
    tail: str
    """The last of what the child printed: untrusted text."""
    seconds: float


def base_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The few variables a child gets: nothing of the caller's but where programs and libraries are."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": str(PACKAGE_ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "JAX_PLATFORMS": "cpu",
        **extra,
    }


def resident_bytes(group: int) -> int:
    """Resident memory of a process group, in bytes; 0 where /proc does not exist."""
    total = 0
    for entry in Path("/proc").glob("[0-9]*") if Path("/proc/self/stat").exists() else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return total


class Child:
    """One child process; ``ask`` sends it a directory to work in and waits for the end of it."""

    def __init__(self, module: str, *, directory: Path, environment: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._output = (directory / "output.txt").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-m", module],
            cwd=directory,
            env=base_environment({"HOME": str(directory), "TMPDIR": str(directory), **(environment or {})}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: Path, limits: Limits) -> Ending:
        """Send ``request`` and wait for the answer, the limits, or the child's death."""
        start = time.monotonic()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{request}\n".encode())
            self._process.stdin.flush()
        how, answer = self._wait(start, limits)
        if how == "died":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
        code = self._process.poll()
        if how != "answered":
            self.close()
        return Ending(
            how=how,
            answer=answer,
            returncode=code,
            tail=self._tail(),
            seconds=time.monotonic() - start,
        )

    def _wait(self, start: float, limits: Limits) -> tuple[str, str]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        received = b""
        while True:
            ready, _, _ = select.select([descriptor], [], [], POLL_SECONDS)
            if ready:
                chunk = os.read(descriptor, 4096)
                received += chunk
                if b"\n" in received:
                    return "answered", received.partition(b"\n")[0].decode(errors="replace")
                if not chunk or len(received) > TAIL_BYTES:
                    return "died", ""
            elif self._process.poll() is not None:
                return "died", ""  # a grandchild may still hold the channel open
            if resident_bytes(self._process.pid) > limits.memory_bytes:
                return "memory", ""
            if time.monotonic() - start > limits.seconds:
                return "timeout", ""

    def _tail(self) -> str:
        data = (self.directory / "output.txt").read_bytes()[-TAIL_BYTES:]
        return data.decode(errors="replace")

    def close(self) -> None:
        """Kill the whole group and reap it. Safe to call twice."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._output):
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(handle: Callable[[Path], str]) -> None:
    """A child's main loop: answer each directory on standard input with one line on the real standard output.

    The answer channel is taken away from descriptor 1 first, so a ``print`` of the candidate's can
    never be mistaken for an answer.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        answer = handle(Path(line.rstrip("\n")))
        channel.write(str(answer).replace("\n", " ") + "\n")
        channel.flush()
