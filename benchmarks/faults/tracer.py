"""Stops a process, and all it starts, at every system call that changes a file; strikes at one of them.

The kernel of Linux reports the calls: a seccomp filter in the traced processes picks those that can write, ptrace stops
them before they are made. x86-64 Linux only; no program such as strace is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ratchet.process.sandbox.system import PR_SET_NO_NEW_PRIVS, prctl, syscall

# arch/x86/entry/syscalls/syscall_64.tbl: what the arguments are by position; P a path, D the folder it is relative to,
# F a descriptor, N a number of bytes, O flags of open.
CALLS = {
    1: ("write", "F-N"), 18: ("pwrite64", "F-N"), 20: ("writev", "F"), 40: ("sendfile", "F"),
    74: ("fsync", "F"), 75: ("fdatasync", "F"), 76: ("truncate", "P"), 77: ("ftruncate", "F"), 285: ("fallocate", "F"),
    326: ("copy_file_range", "--F"),
    2: ("open", "PO"), 85: ("creat", "P"), 257: ("openat", "DPO"), 437: ("openat2", "DP"),
    82: ("rename", "-P"), 264: ("renameat", "--DP"), 316: ("renameat2", "--DP"),
    86: ("link", "-P"), 265: ("linkat", "--DP"), 88: ("symlink", "-P"), 266: ("symlinkat", "-DP"),
    87: ("unlink", "P"), 263: ("unlinkat", "DP"), 83: ("mkdir", "P"), 258: ("mkdirat", "DP"), 84: ("rmdir", "P"),
    90: ("chmod", "P"), 91: ("fchmod", "F"), 268: ("fchmodat", "DP"), 92: ("chown", "P"), 93: ("fchown", "F"),
}  # fmt: skip
WRITES = ("write", "pwrite64", "writev", "sendfile", "copy_file_range", "ftruncate", "fallocate")
SYNCS = ("fsync", "fdatasync")
_OPENS = {2: 1, 257: 2}
"""Calls that change something only with some flags, and where these are."""
_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

# include/uapi/linux/ptrace.h, seccomp.h, bpf_common.h
_TRACEME, _CONT, _GETREGS, _SETREGS, _SYSCALL, _SETOPTIONS = 0, 7, 12, 13, 24, 0x4200
_OPTIONS = 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x100000  # fork, vfork, clone, exec, seccomp; kill all if the tracer ends
_EVENT_SECCOMP = 7
_WALL = 0x40000000
_PTRACE, _SECCOMP = 101, 317
_TRACE, _ALLOW = 0x7FF00000, 0x7FFF0000
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_REGISTERS = 27
_RDX, _CALL, _ARGUMENTS = 12, 15, (14, 13, 12, 7, 9, 8)
"""In struct user_regs_struct: words of the third argument, of the call's number, and of all arguments."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call that is about to be made."""

    number: int
    """How many there were before it, counted from 1."""
    pid: int
    name: str
    path: str
    """What it changes, below the folder that is watched."""
    size: int
    """Of a write, its bytes."""
    flags: int = 0


Look = Callable[[Call], str]
"""Called before every call; says what to do: ``""`` to go on, or which processes to end: ``all``; the ``main`` one
alone; the calling ``one`` alone; or all, after half of a write: ``torn``."""


class _Tracer:
    def __init__(self, watched: Path, look: Look) -> None:
        self._watched = os.fspath(watched)
        self._look = look
        self._alive: set[int] = set()
        self._calls = 0

    def run(self, function: Callable[[], int]) -> int:
        main = os.fork()
        if not main:
            _traced(function)
        os.waitpid(main, 0)
        _ptrace(_SETOPTIONS, main, 0, _OPTIONS)
        self._alive, ended, new = {main}, 0, {main}
        _ptrace(_CONT, main, 0, 0)
        while self._alive:
            try:
                pid, status = os.waitpid(-1, _WALL)
            except ChildProcessError:
                break
            if not os.WIFSTOPPED(status):
                self._alive.discard(pid)
                ended = status if pid == main else ended
                continue
            self._alive.add(pid)
            event, received = status >> 16, os.WSTOPSIG(status)
            if event == _EVENT_SECCOMP:
                self._at_call(pid, main)
                continue
            first = received == signal.SIGSTOP and pid not in new
            new.add(pid)
            _resume(_CONT, pid, 0 if event or first or received == signal.SIGTRAP else received)
        return ended

    def _at_call(self, pid: int, main: int) -> None:
        registers = _registers(pid)
        call = registers and self._described(pid, registers)
        strike = ""
        if call:
            self._calls += 1
            strike = self._look(call)
        if strike == "torn" and registers:
            registers[_RDX] //= 2
            _ptrace(_SETREGS, pid, 0, ctypes.addressof(registers))
            _resume(_SYSCALL, pid, 0)
            os.waitpid(pid, _WALL)  # the call was made
        doomed = {"": (), "main": (main,), "one": (pid,)}.get(strike, tuple(self._alive))
        for one in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        if pid not in doomed:
            _resume(_CONT, pid, 0)

    def _described(self, pid: int, registers: ctypes.Array[ctypes.c_ulonglong]) -> Call | None:
        """The call, if it changes something below the folder that is watched."""
        name, roles = CALLS[registers[_CALL]]
        given = {role: registers[word] for role, word in zip(roles, _ARGUMENTS, strict=False)}
        try:
            if "F" in given:
                path = os.readlink(f"/proc/{pid}/fd/{given['F']}")
            else:
                folder = given.get("D", 0xFFFFFF9C) & 0xFFFFFFFF
                base = f"/proc/{pid}/cwd" if folder == 0xFFFFFF9C else f"/proc/{pid}/fd/{folder}"
                path = os.path.join(os.readlink(base), _text(pid, given["P"]))
        except OSError:
            return None
        if not os.path.normpath(path).startswith(self._watched) or _is_void(name, path, given.get("O", os.O_CREAT)):
            return None
        return Call(
            number=self._calls + 1,
            pid=pid,
            name=name,
            path=os.path.relpath(path, self._watched),
            size=given.get("N", 0),
            flags=given.get("O", 0),
        )


def _is_void(name: str, path: str, flags: int) -> bool:
    """Whether the call will change nothing."""
    if name.startswith(("unlink", "rmdir")):
        return not os.path.lexists(path)
    if name.startswith("mkdir"):
        return os.path.lexists(path)
    if name.startswith(("open", "creat")):
        return not flags & (os.O_CREAT | os.O_TRUNC) or not os.path.isdir(os.path.dirname(path))
    return False


def trace(function: Callable[[], int], *, watched: Path, look: Look) -> int:
    """Runs ``function`` in a child process, which ends with its answer, and reports its calls that change files.

    Returns the child's status, as ``os.waitpid`` gives it.

    Raises:
      OSError: tracing is not permitted here.
    """
    return _Tracer(watched, look).run(function)


def available() -> bool:
    """Whether processes can be traced here."""
    if os.uname().machine != "x86_64" or os.uname().sysname != "Linux":
        return False
    seen: list[Call] = []
    null = Path("/dev/null")
    try:
        return not trace(lambda: null.write_bytes(b"x") - 1, watched=null, look=noting(seen)) and bool(seen)
    except OSError:
        return False


def noting(calls: list[Call]) -> Look:
    """Notes the calls and lets all go on."""

    def look(call: Call) -> str:
        calls.append(call)
        return ""

    return look


def _traced(function: Callable[[], int]) -> None:
    """The child's life."""
    code = 99
    try:
        _ptrace(_TRACEME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        rules = _filter()
        program = ctypes.create_string_buffer(rules, len(rules))
        syscall(_SECCOMP, 1, 0, struct.pack("HxxxxxxQ", len(rules) // 8, ctypes.addressof(program)))
        code = function()
    finally:
        os._exit(code)


def _filter() -> bytes:
    """Report the calls in ``CALLS``, those that open only where they may change something."""
    code = [(_LOAD, 0, 0, 0)]
    for number in CALLS:
        if number in _OPENS:
            where = 16 + 8 * _OPENS[number]
            code += [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, where), (_ANY_BIT, 0, 1, _CHANGING)]
            code += [(_RETURN, 0, 0, _TRACE), (_RETURN, 0, 0, _ALLOW)]
        else:
            code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _TRACE)]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *one) for one in code)


def _ptrace(request: int, pid: int, address: int, data: int) -> None:
    syscall(_PTRACE, request, pid, address, data)


def _resume(request: int, pid: int, number: int) -> None:
    try:
        _ptrace(request, pid, 0, number)
    except OSError as error:  # somebody else ended it
        if error.errno != errno.ESRCH:
            raise


def _registers(pid: int) -> ctypes.Array[ctypes.c_ulonglong] | None:
    registers = (ctypes.c_ulonglong * _REGISTERS)()
    try:
        _ptrace(_GETREGS, pid, 0, ctypes.addressof(registers))
    except OSError:
        return None
    return registers


def _text(pid: int, address: int) -> str:
    """A text of the process's, at most as long as a path may be."""
    text = b""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        while b"\0" not in text and len(text) < 4096:
            text += memory.read(256 - (address + len(text)) % 256)
    return os.fsdecode(text.partition(b"\0")[0])
