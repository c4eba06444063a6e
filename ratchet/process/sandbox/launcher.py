"""The first thing that runs in a child of the judge's: it builds the walls around itself, then runs one module.

Three processes. The outer one stays outside the walls: when the judge lets go of the control socket, or the module's
process ends, it kills whatever is left and waits until it is gone. The middle one is the first process of the
namespaces, so that the kernel ends everything in them with it. The inner one is alone, with one thread, when it gives
up its rights; only then does it import the module, or become another Python that does.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from ratchet.process.sandbox import landlock, namespaces, seccomp, system
from ratchet.process.sandbox.inside import run

FILE_BYTES = 1 << 30
PROCESSES = 4096
BROKEN = 70
REPORT_BYTES = 1 << 16


def main(control: int) -> None:
    """Read what is wanted from the ``control`` socket, and never return."""
    judge = socket.socket(fileno=control)
    asked: dict[str, Any] = json.loads(judge.recv(REPORT_BYTES))
    _alone()
    system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
    heard, tell = os.pipe()
    wanted = set(asked["walls"])
    limits = {"folder_bytes": asked["folder_bytes"], "folder_files": asked["folder_files"]}
    middle = namespaces.fork(asked["directory"], **limits) if "namespaces" in wanted else None
    built = {"namespaces"} if middle is not None else set()
    if middle is None:
        middle = os.fork()
    if middle:
        os.close(tell)
        _outer(judge, heard, middle)
    os.close(heard)
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
    inner = os.fork()
    if inner:
        judge.close()
        _middle(inner, tell)
    os.close(tell)
    try:
        _inner(judge, asked, wanted, built)
    except BaseException as error:
        print(f"the jail cannot be built: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(BROKEN)
    run(asked["module"])


def _alone() -> None:
    """Landlock and seccomp confine one thread: there has to be one only."""
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:
        raise RuntimeError(f"{len(threads)} threads, wanted one")


def _inner(judge: socket.socket, asked: dict[str, Any], wanted: set[str], built: set[str]) -> None:
    """Give up rights for good, and tell the judge which walls are there, with the folder's descriptor."""
    os.chdir(asked["directory"])
    _alone()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if wanted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
        system.drop_capabilities()
    writable = [asked["directory"], "/dev/null"]
    becomes, programs = asked["becomes"], asked["programs"]
    readable = asked["readable"]
    if "namespaces" in built:  # of its own processes alone
        readable = ["/proc", *(one for one in readable if one != landlock.OWN)]
    if "landlock" in wanted and landlock.restrict(readable=readable, writable=writable, programs=programs):
        built.add("landlock")
    if "seccomp" in wanted and seccomp.refuse(processes=asked["processes"], becomes=bool(becomes)):
        built.add("seccomp")
    socket.send_fds(judge, [json.dumps(sorted(built)).encode()], [folder])
    judge.close()
    os.close(folder)
    if becomes:
        os.execv(becomes[0], becomes)
    sys.path += asked["packages"]


def _let_go() -> None:
    """The streams of requests and answers belong to the inner process: their end is its end."""
    os.close(0)
    os.close(1)


def _middle(inner: int, tell: int) -> None:
    """Reap until the inner process ends, say how it ended, and end everything with it."""
    _let_go()
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == inner:
            os.write(tell, f"{status}\n".encode())
            os._exit(0)


def _outer(judge: socket.socket, heard: int, middle: int) -> None:
    """Wait for the end, or for the judge to let go; then leave nothing behind, and end as the inner process did."""
    _let_go()
    waiting = select.poll()
    waiting.register(judge, select.POLLIN)
    waiting.register(heard, select.POLLIN)
    waiting.poll()
    sweep(middle)
    said = os.read(heard, 64).partition(b"\n")[0]
    status = int(said) if said.isdigit() else signal.SIGKILL
    if os.WIFSIGNALED(status):
        ending = os.WTERMSIG(status)
        if ending not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(ending, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), ending)
    os._exit(os.WEXITSTATUS(status))


def sweep(first: int) -> None:
    """Kill ``first`` and every descendant, orphans included, and wait until they are gone."""
    doomed = {first}
    while True:
        for process in doomed | _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        try:
            gone, _ = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        doomed.discard(gone)  # its number may be another's by now


def _descendants() -> set[int]:
    """All processes below this one, by their parents in /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}
