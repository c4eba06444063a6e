"""Child processes that may hang, crash or eat the memory without taking the judge with them.

A child runs behind walls (``ratchet/process/sandbox/``) in a folder of its own, with a scrubbed environment, and
imports the judge's modules from sources that were read once. Then it answers requests: the parent writes one line (a
directory) to its standard input, the child works in that directory and answers with one line. Everything else a child
prints goes to ``output`` files that are only ever shown, never parsed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.process.boot import bytecode, children, sources
from ratchet.process.boot.children import Interpreter, packages
from ratchet.process.boot.home import PACKAGE_ROOT
from ratchet.process.sandbox import landlock
from ratchet.process.sandbox.folder import Folder
from ratchet.process.sandbox.warm import Forked, Warm

POLL_SECONDS = 0.05
WEIGH_SECONDS = 0.2
"""How often a child's memory is summed up: that reads all of /proc."""
WATCH_SECONDS = 0.5
"""How often a child's folder is looked at."""
START_SECONDS = 60.0
"""How long walls may take to build, and a warm process to import what it is for."""
TAIL_BYTES = 4000
OUTPUT_BYTES = 64 << 20
"""What a child may print."""

SYSTEM = (
    *("/usr", "/lib", "/lib64", "/bin"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf", "/etc/ssl/openssl.cnf"),
    *("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage"),
    *(landlock.OWN, "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/cmdline"),
    *("/proc/filesystems", "/proc/sys/vm/overcommit_memory"),
)
"""What a Python with its libraries reads of the system: of processes, itself. In namespaces of its own it has /proc."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

NAMES = ("namespaces", "landlock", "seccomp")
"""All walls."""


@dataclass(frozen=True, kw_only=True)
class Walls:
    """What separates a child from everything else. A wall that the machine has no means for is reported, no error."""

    names: tuple[str, ...] = NAMES
    processes: bool = False
    """Whether it may start others."""
    readable: tuple[Path, ...] = ()
    """What it may read besides the system, the packages and its own folder."""
    in_memory: bool = False
    """Its folder is a file system of its own, of limited size, where there are namespaces."""
    folder_bytes: int = 16 << 30
    folder_files: int = 100_000


JAILED = Walls()
OPEN = Walls(names=(), processes=True)
"""For a child that runs no code of an author's and opens a device or writes elsewhere: it ends with all it started."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a child may use. Exceeding a limit is an outcome, not an error of the judge."""

    seconds: float
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a request ended: ``answered``, ``timeout``, ``memory``, ``disk``, ``died`` or ``cancelled``."""

    how: str
    answer: str
    """The child's one line, or ``""``."""
    returncode: int | None
    """Exit code, negative for a signal; None while the child lives."""
    tail: str
    """The last of what the child printed: untrusted text."""
    seconds: float

    @property
    def last(self) -> str:
        """The last line that the child printed."""
        return (self.tail.strip().splitlines() or ["it printed nothing"])[-1]


def resident_bytes(group: int) -> int:
    """Resident memory of a process group, in bytes; 0 where /proc does not exist."""
    pages = 0
    with contextlib.suppress(OSError):
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if int(fields[2]) == group:
                    pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Child:
    """One child process; ``ask`` sends it a directory to work in and waits for the end of it.

    All that it can write to is its ``directory``. ``module`` is one of the judge's, or one below ``PACKAGE_ROOT``. With
    an ``interpreter`` another Python runs it.
    """

    def __init__(
        self,
        module: str,
        *,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        walls: Walls = JAILED,
        interpreter: Interpreter | None = None,
        warm: Warm | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory.resolve()
        self.walls = walls
        self._interpreter = interpreter
        self._requests = 0
        self._missing: tuple[str, ...] | None = None
        self._folder: Folder | None = None
        self._reporting = threading.Lock()
        self._cancelled = False
        self._weighed = self._watched = -math.inf
        self._output = self.directory.with_name(f"{directory.name}.output.txt").open("w+b")
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own = {"HOME": str(self.directory), "TMPDIR": str(self.directory), **(environment or {})}
        self.variables: Mapping[str, str] = children.environment(own)
        """Its environment."""
        with theirs:
            self._process = self._started(theirs.fileno(), self.variables, warm)
        with contextlib.suppress(OSError):
            self._control.send(json.dumps(self._wanted(module)).encode())

    def _started(
        self, control: int, variables: Mapping[str, str], warm: Warm | None
    ) -> subprocess.Popen[bytes] | Forked:
        if warm is not None and warm.alive:
            with contextlib.suppress(OSError):
                return warm.fork(environment=variables, control=control, output=self._output.fileno())
        bytecode.fill(packages())
        return subprocess.Popen(
            children.command(control),
            cwd="/",
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            start_new_session=True,
            pass_fds=(children.code(), control, *([children.code(self._interpreter)] if self._interpreter else ())),
        )

    def _wanted(self, module: str) -> dict[str, object]:
        """What the launcher is asked for."""
        extra = () if module.startswith(f"{sources.PACKAGE}.") else (str(PACKAGE_ROOT),)
        other = self._interpreter
        installed = other.path if other else (*packages(), *extra)
        readable = [
            *SYSTEM,
            *DEVICES,
            *installed,
            *(other.readable if other else (*bytecode.folders(), sys.base_prefix)),
            str(PACKAGE_ROOT / sources.PACKAGE),
            *map(str, self.walls.readable),
        ]
        return {
            "module": module,
            "directory": str(self.directory),
            "walls": self.walls.names,
            "processes": self.walls.processes,
            "folder_bytes": self.walls.folder_bytes if self.walls.in_memory else 0,
            "folder_files": self.walls.folder_files,
            "readable": readable,
            "packages": installed,
            "becomes": children.becomes(other, module) if other else [],
            "programs": other.programs if other else (),
        }

    @property
    def alive(self) -> bool:
        """Whether it can be asked: it runs, and was not cancelled."""
        return not self._cancelled and self._process.poll() is None

    @property
    def missing(self) -> tuple[str, ...]:
        """The walls that are not there. Waits until the others are built."""
        self._await_walls()
        return self._missing or ()

    @property
    def folder(self) -> Folder:
        """The child's directory as the child sees it, which the judge reads and writes by descriptor."""
        self._await_walls()
        assert self._folder is not None
        return self._folder

    def request(self) -> Path:
        """A new folder in the child's directory, for one request."""
        self._requests += 1
        folder = self.directory / f"request-{self._requests:04d}"
        folder.mkdir()
        return folder

    def _await_walls(self) -> None:
        """Of several threads one takes the report: there is one, and the others would wait for another."""
        with self._reporting:
            if self._folder is None:
                self._take_report()

    def _take_report(self) -> None:
        self._control.settimeout(START_SECONDS)
        descriptors: list[int] = []
        report = b""
        with contextlib.suppress(OSError):
            report, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
        if report and descriptors:
            built = json.loads(report)
            self._missing, self._folder = tuple(n for n in NAMES if n not in built), Folder(descriptors[0])
        else:  # it died, which is what asking it will find
            self._missing, self._folder = (), Folder.at(self.directory)

    def ask(self, request: Path, limits: Limits) -> Ending:
        """Send ``request`` and wait for the answer, the limits, or the child's death."""
        start = time.monotonic()
        self._await_walls()
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
            self.end()
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
        self._weighed = self._watched = -math.inf
        while not self._cancelled:
            ready, _, _ = select.select([descriptor], [], [], POLL_SECONDS)
            if ready:
                chunk = os.read(descriptor, 4096)
                received += chunk
                if b"\n" in received:
                    answer = received.partition(b"\n")[0].decode(errors="replace")
                    return ("disk", "") if self._too_much_on_disk() else ("answered", answer)
                if not chunk or len(received) > TAIL_BYTES:
                    return "died", ""
            elif self._process.poll() is not None:
                return "died", ""  # a grandchild may still hold the channel open
            if exceeded := self._exceeded(limits, start):
                return exceeded, ""
        return "cancelled", ""

    def _exceeded(self, limits: Limits, start: float) -> str:
        """Which limit is exceeded, or ``""``. Memory and disk are looked at now and then."""
        now = time.monotonic()
        if now - self._weighed > WEIGH_SECONDS:
            self._weighed = now
            if resident_bytes(self._process.pid) > limits.memory_bytes:
                return "memory"
        if now - start > limits.seconds:
            return "timeout"
        if now - self._watched > WATCH_SECONDS:
            self._watched = now
            if self._too_much_on_disk():
                return "disk"
        return ""

    def cancel(self) -> None:
        """End the request under way, and the child with it, from another thread than the one that waits for it.

        A child that is idle answers its next request as ``cancelled`` and is not ``alive`` from now on.
        """
        self._cancelled = True

    def _too_much_on_disk(self) -> bool:
        if os.fstat(self._output.fileno()).st_size > OUTPUT_BYTES:
            return True
        count, size = self.folder.used(files=self.walls.folder_files)
        return count > self.walls.folder_files or size > self.walls.folder_bytes

    def _tail(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        data = os.pread(self._output.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES))
        return data.decode(errors="replace")

    def let_go(self) -> None:
        """Have it end by itself, with everything that it started, beside what is done before ``end`` waits for it."""
        self._cancelled = True
        self._control.close()  # the launcher's outer process ends the rest and waits for it

    def end(self) -> None:
        """End the child and everything that it started; its folder stays to be read. Safe to call twice."""
        self.let_go()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def close(self) -> None:
        """``end``, and give back all that is held. Safe to call twice."""
        self.end()
        self._output.close()
        if self._folder is not None:
            self._folder.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(handle: Callable[[Path], str]) -> None:
    """A child's main loop: answer each directory on standard input with one line on the real standard output.

    The answer channel is taken away from descriptor 1 first, so a ``print`` of the candidate's can
    never be mistaken for an answer.
    """
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answer = handle(Path(line.rstrip("\n")))
        channel.write(str(answer).replace("\n", " ") + "\n")
        channel.flush()
