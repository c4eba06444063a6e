"""A process that has imported JAX, of which children are forked: each import takes a second or two.

Here is what its owners do with it; what it does itself is in ``forking.py``. Those that run an author's code are forked
of another one than the judge's own: children of one have their libraries at the same addresses. It may outlive its
owner and serve the next (``standby.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ratchet.process import fast
from ratchet.process.boot import bytecode, children, home, sources
from ratchet.process.sandbox import standby

JEMALLOC = "ray/core/libjemalloc.so"
"""In a folder of packages: ray's, which the judge's environment has for searches on a cluster."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is forked of a warm process."""

    name: str
    modules: tuple[str, ...] = ()
    """What children run; they are the judge's."""
    also: tuple[str, ...] = ()
    """What those import once they are asked, which is quicker here; what is not there is left out."""
    allocator: bool = False
    """Whether they have jemalloc, where it is installed."""


class Forked:
    """A child of the warm process: what is used of ``subprocess.Popen``. The descriptors are its own from now on.

    One thread may ask for its end (``poll``) while another waits for it (``wait``).
    """

    def __init__(self, stdin: int, stdout: int, said: int) -> None:
        self.stdin: IO[bytes] | None = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(stdout, "rb")
        self.returncode: int | None = None
        os.set_blocking(said, False)
        self._said, self._heard, self._hearing = said, b"", threading.Lock()

    @property
    def pid(self) -> int:
        """The number of its outer process, once it is forked.

        Raises:
          ProcessLookupError: where it never was.
        """
        while b"," not in self._heard and self._listened(None) is None:
            pass
        number, comma, _ = self._heard.partition(b",")
        if not comma:
            raise ProcessLookupError("it was never forked")
        return int(number)

    def poll(self) -> int | None:
        """As of ``subprocess.Popen``. The end of the warm process is the end of what is not forked yet."""
        return self._listened(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """As of ``subprocess.Popen``.

        Raises:
          subprocess.TimeoutExpired: if it lives.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self._listened(None if end is None else max(0.0, end - time.monotonic()))) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("a forked child", timeout or 0.0)
        with self._hearing:
            if self._said >= 0:
                os.close(self._said)
                self._said = -1
        return code

    def _listened(self, seconds: float | None) -> int | None:
        """Hear what the warm process says within that time: first the number of the child, then how it ended."""
        with contextlib.suppress(OSError, ValueError):  # another thread has waited for its end, and closed it
            while self.returncode is None and select.select([self._said], [], [], seconds)[0]:
                with self._hearing:
                    self._hear()
                seconds = 0.0
        return self.returncode

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):  # another thread heard it
            said = os.read(self._said, 64)
            self._heard += said
            if not said:
                ending = self._heard.partition(b",")[2]
                self.returncode = os.waitstatus_to_exitcode(int(ending)) if ending else -signal.SIGKILL


class Warm:
    """A warm process of a kind; it imports while its owner does other things. One that was ``waiting`` has imported."""

    def __init__(self, kind: Kind, *, waiting: socket.socket | None = None) -> None:
        self._ready = waiting is not None
        self._stays = False
        self._process: subprocess.Popen[bytes] | None = None
        if waiting is not None:
            self._control = waiting
            return
        bytecode.fill(children.packages())
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                children.command(theirs.fileno(), main="ratchet.process.sandbox.forking"),
                cwd="/",
                env=_variables(kind),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(children.code(), theirs.fileno()),
            )
        with contextlib.suppress(OSError):
            asked = {"packages": children.packages(), "modules": kind.modules, "also": kind.also}
            self._control.send(json.dumps(asked).encode())

    @property
    def alive(self) -> bool:
        """Whether children can be forked of it."""
        if self._process is not None:
            return self._process.poll() is None
        try:
            return bool(self._control.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
        except BlockingIOError:  # it has nothing to say
            return True
        except OSError:
            return False

    def fork(self, *, environment: Mapping[str, str], control: int, output: int) -> Forked:
        """A child that gets its orders from the socket ``control`` and prints to ``output``, once all is imported.

        ``environment`` holds all its variables.

        Raises:
          OSError: if the process ended.
        """
        (theirs_in, stdin), (stdout, theirs_out), (said, say) = os.pipe(), os.pipe(), os.pipe()
        forked = Forked(stdin, stdout, said)
        try:
            given = [theirs_in, theirs_out, output, control, say]
            socket.send_fds(self._control, [json.dumps(dict(environment)).encode()], given)
        finally:
            for descriptor in (theirs_in, theirs_out, say):
                os.close(descriptor)
        return forked

    def stay(self, path: Path) -> None:
        """It waits at ``path`` for other owners, if nobody waits there yet, and outlives this one."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                asked = {"path": os.fspath(path), "idle_seconds": standby.idle_seconds()}
                self._control.send(json.dumps(asked).encode())
                self._stays = True

    def cancel(self) -> None:
        """End it if it still imports: none of the children that were asked for will be. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._ready = self._ready or self._control.recv(len(standby.READY), socket.MSG_DONTWAIT) == standby.READY
        if not self._ready and self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End it, after its children, unless it stays or waited. Safe to call twice."""
        self._control.close()
        if self._process is None or (self._stays and self._ready):
            return
        self._process.kill()
        self._process.wait()


def process(kind: Kind, seal: str) -> Warm | None:
    """A process of this kind: one that waits for work, or else a new one; None where none is wanted.

    With a ``seal`` it is one that was made under it, and it waits for the next run.
    """
    if not fast.ON.forks:
        return None
    path = standby.socket_path(kind.name, _shared(kind), seal) if seal and fast.ON.standby else None
    waiting = standby.connected(path) if path else None
    made = Warm(kind, waiting=waiting)
    if path and not waiting:
        made.stay(path)
    return made


def waiting(kinds: Sequence[Kind]) -> tuple[str, list[Warm]]:
    """A waiting process of each kind, all made under one seal, and that seal; none where one kind has none.

    Nothing that comes of them counts before the caller has compared the seal with the judge's.
    """
    if not (fast.ON.forks and fast.ON.standby):
        return "", []
    shared = [_shared(kind) for kind in kinds]
    first, *others = (standby.seals(*both) for both in zip((kind.name for kind in kinds), shared, strict=True))
    seal = next((one for one in first if all(one in other for other in others)), "")
    found: list[Warm] = []
    for kind, made_of in zip(kinds, shared, strict=True):
        path = standby.socket_path(kind.name, made_of, seal) if seal else None
        connection = standby.connected(path) if path else None
        if connection is None:
            for one in found:
                one.close()
            return "", []
        found.append(Warm(kind, waiting=connection))
    return seal, found


def preload(packages: Iterable[str]) -> dict[str, str]:
    """Variables that have the loader take jemalloc in a process that is started with them; none where it is missing.

    The TPU compiler makes small objects by the million, and takes less time for a large kernel with it than with the
    allocator of glibc. Nothing else follows from which one it is.
    """
    found = [path for path in (Path(folder, JEMALLOC) for folder in packages) if path.is_file()]
    # The loader splits its list at these, and takes what it finds in the pieces.
    usable = [str(path) for path in found if not set(" :").intersection(str(path))]
    return {"LD_PRELOAD": usable[0]} if usable and fast.ON.allocator else {}


def _variables(kind: Kind) -> dict[str, str]:
    """What a warm process is started with."""
    return children.environment(preload(children.packages()) if kind.allocator else {})


def _shared(kind: Kind) -> str:
    """What a warm process is made of. The contents of packages are not in it: they are in the seal."""
    judge = sources.loaded(home.PACKAGE_ROOT).digest
    return repr((judge, sys.version, os.path.realpath(sys.executable), children.packages(), kind, _variables(kind)))
