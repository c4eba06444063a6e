"""The process that ``warm.py`` starts: it imports what children need, then forks them for its owners.

It runs no code of an author's, reads nothing that one left, and is given no secret: it learns packages, modules, and
for each child the variables of its process. Libraries that it loaded stop their threads when it forks. A child keeps no
descriptor but its streams and its control socket, and builds its walls before it runs anything
(``ratchet/process/sandbox/launcher.py``, which refuses where there is a second thread).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ratchet.process.boot import children
from ratchet.process.sandbox import launcher, standby

_MESSAGE_BYTES = 1 << 16


def main(control: int) -> None:
    """Import, then fork a child for every request, until the owner and all later ones let go."""
    owner = socket.socket(fileno=control)
    asked = json.loads(owner.recv(_MESSAGE_BYTES))
    sys.path += asked["packages"]
    gc.disable()  # nothing that is imported goes again
    for module in asked["modules"]:
        importlib.import_module(module)
        del sys.modules[module]  # a child runs it as its main program
    for module in asked["also"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()  # pages of what is there stay shared
    gc.enable()
    gc.set_threshold(children.OBJECTS)
    with contextlib.suppress(OSError):  # an owner that let go meanwhile is noticed next
        owner.send(standby.READY)
    _Forking(owner).run()
    os._exit(0)


class _Forking:
    """What the process does once it has imported: it serves its owners."""

    def __init__(self, owner: socket.socket) -> None:
        self._owners = [owner]
        self._listener: standby.Listener | None = None
        self._idle_since: float | None = None
        """On the monotonic clock; None while there are owners or children."""
        self._children: dict[int, int] = {}
        """By number, the descriptor at which it is said how the child ended."""
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve until there is no owner and none may come."""
        while self._owners or self._listener:
            heard: list[socket.socket | int] = [*self._owners, self._woken]
            if self._listener:
                heard.append(self._listener.socket)
            # Without a listener there is an owner, and nothing is due before it says something.
            timeout = self._listener.seconds_left(self._idle_since) if self._listener else None
            ready, _, _ = select.select(heard, [], [], timeout)
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            for owner in [owner for owner in self._owners if owner in ready]:
                self._hear(owner)
            if self._listener and self._listener.socket in ready and (new := self._listener.accept()):
                self._owners.append(new)
            busy = bool(self._owners or self._children)
            self._idle_since = None if busy else self._idle_since or time.monotonic()
            if self._listener and not self._listener.seconds_left(self._idle_since):
                self._shut()

    def _shut(self) -> None:
        """Nobody connects any more."""
        if self._listener:
            self._listener.close()
            self._listener = None

    def _hear(self, owner: socket.socket) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(owner, _MESSAGE_BYTES, 5)
        except OSError:
            message, descriptors = b"", []
        if not message or message == standby.LEAVE:
            self._owners.remove(owner)
            owner.close()
            if message:
                self._shut()
            return
        asked = json.loads(message)
        if descriptors:
            self._fork(asked, descriptors)
        else:
            self._stay(**asked)

    def _stay(self, path: str, idle_seconds: float) -> None:
        if self._listener is None:
            with contextlib.suppress(OSError):
                self._listener = standby.Listener(Path(path), idle_seconds)

    def _fork(self, environment: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        """A child, of which its owner learns the number; of one that cannot be forked, that it ended."""
        *given, say = descriptors
        try:
            number = os.fork()
        except OSError:
            number = -1
        if number == 0:
            _become(environment, given)
        for descriptor in given:
            os.close(descriptor)
        if number < 0:
            os.close(say)
            return
        self._children[number] = say
        _say(say, f"{number},")

    def _reap(self) -> None:
        """Say of each child that ended how it did."""
        for number, say in list(self._children.items()):
            ended, status = os.waitpid(number, os.WNOHANG)
            if ended:
                _say(say, f"{status}")
                os.close(self._children.pop(number))


def _say(descriptor: int, text: str) -> None:
    """To an owner, which may be gone."""
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, text.encode())


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
