"""A process that has imported JAX, of which children are forked: each import takes a second or two.

It runs no code of an author's, reads nothing that one left, and is given no secret: it learns packages, modules, and
for each child the variables of its process. Libraries that it loaded stop their threads when it forks. A child keeps no
descriptor but its streams and its control socket, and builds its walls before it runs anything
(``ratchet/jail/launcher.py``, which refuses where there is a second thread). Children of one warm process have their
libraries at the same addresses, so those that run an author's code are of another one than the judge's own.

It may outlive its owner, and serve the next (``standby.py``).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

from ratchet import boot, bytecode, sources, standby
from ratchet.jail import launcher

JUDGE = ("ratchet.judge.values_worker", "ratchet.compiler.worker", "ratchet.judge.schedule_worker")
"""What the judge's own children run. Named here: the modules that start them import more than may be waited for."""
AUTHOR = ("ratchet.candidate.worker",)
"""What children run that run an author's code."""

_DIALECTS = tuple(f"jaxlib.mlir.dialects.{name}" for name in ("arith", "builtin", "math", "mhlo", "scf", "vector"))
_BESIDE = {
    JUDGE: _DIALECTS,
    AUTHOR: (
        *_DIALECTS,
        "jax.experimental.pallas",
        "jax.experimental.pallas.tpu",
        "jax._src.pallas.mosaic.pallas_call_registration",
    ),
}
"""What those import once they are asked, which is quicker here; what another version of JAX lacks is left out."""

_MESSAGE_BYTES = 1 << 16
_STAY = "stay"
"""Of a message: the path of the socket at which to wait once its owner lets go."""


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
    """A warm process with ``modules``; it imports them while its owner does other things.

    One that was ``waiting`` has imported them.
    """

    def __init__(self, modules: Sequence[str], *, waiting: tuple[socket.socket, str] | None = None) -> None:
        self._ready = waiting is not None
        self._stays = False
        self._process: subprocess.Popen[bytes] | None = None
        self.seal = ""
        """Under which it was made, where that was before."""
        if waiting is not None:
            self._control, self.seal = waiting
            return
        bytecode.fill(boot.packages())
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                boot.command(theirs.fileno(), main="ratchet.warm"),
                cwd="/",
                env=boot.environment({name: os.environ[name] for name in (standby.MINUTES,) if name in os.environ}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(boot.code(), theirs.fileno()),
            )
        with contextlib.suppress(OSError):
            asked = {"packages": boot.packages(), "modules": modules, "beside": _BESIDE.get(tuple(modules), ())}
            self._control.send(json.dumps(asked).encode())

    @property
    def alive(self) -> bool:
        """Whether children can be forked of it."""
        if self._process is not None:
            return self._process.poll() is None
        with contextlib.suppress(BlockingIOError):
            return bool(self._control.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
        return True

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
                self._control.send(json.dumps({_STAY: os.fspath(path)}).encode())
                self._stays = True

    def cancel(self) -> None:
        """End it if it still imports: none of the children that were asked for will be. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._ready = self._ready or self._control.recv(_MESSAGE_BYTES, socket.MSG_DONTWAIT) == standby.READY
        if not self._ready and self._process is not None:
            self._process.kill()
            self._process.wait()

    def leave(self) -> None:
        """Close it, and let it go if it waited."""
        with contextlib.suppress(OSError):
            self._control.send(standby.LEAVE)
        self.close()

    def close(self) -> None:
        """End it, after its children, unless it stays or waited. Safe to call twice."""
        self._control.close()
        if self._process is None or (self._stays and self._ready):
            return
        self._process.kill()
        self._process.wait()


_BEGUN: dict[tuple[str, ...], Warm] = {}
_KINDS = {JUDGE: "judge", AUTHOR: "author"}


def begin() -> None:
    """Start what a verdict forks its children of, while this process still imports what it takes to ask for one.

    Processes that wait for work are used. Where packages were never compiled here, that comes first, and whoever needs
    children waits for it. What fails is tried again, and said, where it is needed.
    """
    atexit.register(_forget)
    with contextlib.suppress(OSError):
        for modules, kind in _KINDS.items() if bytecode.is_filled(boot.packages()) else ():
            _BEGUN[modules] = Warm(modules, waiting=standby.waiting(kind, _shared()))


def begun(modules: tuple[str, ...], seal: str) -> Warm | None:
    """The process with these modules that was begun, once; who asks for it closes it. It then waits for the next run.

    None where it was made under another seal. Without a ``seal`` it was begun here, or None, and does not stay.
    """
    process = _BEGUN.pop(modules, None)
    if process is None:
        return None
    if process.seal and process.seal != seal:
        process.leave()
        return None
    if seal and (path := standby.place(_KINDS[modules], _shared(), seal)):
        process.stay(path)
    return process


def _shared() -> str:
    """What a warm process is made of, but for the contents of packages, which the seal covers."""
    judge = sources.loaded(boot.PACKAGE_ROOT).digest
    return repr((judge, sys.version, os.path.realpath(sys.executable), boot.packages(), boot.environment({})))


def _forget() -> None:
    while _BEGUN:
        _BEGUN.popitem()[1].close()


def main(control: int) -> None:
    """The warm process: import, then fork a child for every request, until its owner and all later ones let go."""
    owner = socket.socket(fileno=control)
    asked = json.loads(owner.recv(_MESSAGE_BYTES))
    sys.path += asked["packages"]
    gc.disable()  # nothing that is imported goes again
    for module in asked["modules"]:
        importlib.import_module(module)
        del sys.modules[module]  # a child runs it as its main program
    for module in asked["beside"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()  # pages of what is there stay shared
    gc.enable()
    gc.set_threshold(boot.OBJECTS)
    with contextlib.suppress(OSError):
        owner.send(standby.READY)
    _Forking(owner).run()
    os._exit(0)


class _Forking:
    """What a warm process does once it has imported: it serves its owners."""

    def __init__(self, owner: socket.socket) -> None:
        self._owners = [owner]
        self._door: standby.Door | None = None
        self._idle_since: float | None = None
        """On the monotonic clock; None while there are owners or children."""
        self._children: dict[int, int] = {}
        """By number, the descriptor at which it is said how the child ended."""
        ended, self._ended = os.pipe()
        self._ending = ended
        os.set_blocking(self._ended, False)
        signal.set_wakeup_fd(self._ended)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve until there is no owner and none may come."""
        while True:
            waiting: list[socket.socket | int] = [*self._owners, self._ending]
            if self._door:
                waiting.append(self._door.listener)
            ready, _, _ = select.select(waiting, [], [], self._patience())
            if self._ending in ready:
                os.read(self._ending, 4096)
                self._reap()
            for owner in [owner for owner in self._owners if owner in ready]:
                self._hear(owner)
            if self._door and self._door.listener in ready and (new := self._door.accept()):
                self._owners.append(new)
            busy = bool(self._owners or self._children)
            self._idle_since = None if busy else self._idle_since or time.monotonic()
            if self._door and not self._door.seconds_left(self._idle_since):
                self._leave()
            if not self._owners and self._door is None:
                return

    def _patience(self) -> float | None:
        """Seconds until something is due though nothing happens; None for never."""
        return self._door.seconds_left(self._idle_since) if self._door else None

    def _leave(self) -> None:
        if self._door:
            self._door.close()
            self._door = None

    def _hear(self, owner: socket.socket) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(owner, _MESSAGE_BYTES, 5)
        except OSError:
            message, descriptors = b"", []
        if not message or message == standby.LEAVE:
            self._owners.remove(owner)
            owner.close()
            if message:
                self._leave()
            return
        asked = json.loads(message)
        if not descriptors:
            self._stay(Path(asked[_STAY]))
            return
        *given, say = descriptors
        number = os.fork()
        if not number:
            _become(asked, given)
        os.write(say, f"{number},".encode())
        self._children[number] = say
        for descriptor in given:
            os.close(descriptor)

    def _stay(self, path: Path) -> None:
        if self._door is None:
            with contextlib.suppress(OSError):
                self._door = standby.Door(path)

    def _reap(self) -> None:
        """Say of each child that ended how it did."""
        for number, say in list(self._children.items()):
            ended, status = os.waitpid(number, os.WNOHANG)
            if ended:
                with contextlib.suppress(BrokenPipeError):
                    os.write(say, f"{status}".encode())
                os.close(self._children.pop(number))


def _become(environment: Mapping[str, str], given: Sequence[int]) -> NoReturn:
    """Make this fork what ``subprocess`` would have started, the launcher of a child.

    ``given``: its standard input, output and error, and its control socket.
    """
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        above = [os.dup(descriptor) for descriptor in given]  # none of them is one that is overwritten
        for place, descriptor in enumerate(above):
            os.dup2(descriptor, place)
        os.closerange(len(given), max(map(int, os.listdir("/proc/self/fd"))) + 1)
        sys.stdin = os.fdopen(0, closefd=False)
        os.environ.clear()
        os.environ.update(environment)
        launcher.main(len(given) - 1)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(launcher.BROKEN)
