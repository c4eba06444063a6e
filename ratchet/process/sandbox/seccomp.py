"""Seccomp: system calls that are refused from now on. Numbers are arch/x86/entry/syscalls/syscall_64.tbl."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

from ratchet.process.sandbox.system import syscall

_SECCOMP = 317
_SET_MODE_FILTER = 1  # include/uapi/linux/seccomp.h
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_AUDIT_ARCH_X86_64 = 0xC000003E  # include/uapi/linux/audit.h
_X32 = 0x40000000
_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # include/uapi/linux/bpf_common.h
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_CLONE, _CLONE3, _KILL_CALL, _TGKILL, _EXECVE = 56, 435, 62, 234, 59
_CLONE_THREAD = 0x00010000

NETWORK = (41, 42, 43, 49, 50, 288)
"""socket, connect, accept, bind, listen, accept4. Pairs of sockets stay: they reach nobody."""
OTHERS = (101, 310, 311, 312, 424, 434, 438, 200, 129, 297)
"""ptrace, process_vm_readv, process_vm_writev, kcmp, pidfd_*, tkill, rt_sigqueueinfo, rt_tgsigqueueinfo."""
MOUNTS = (155, 161, 165, 166, 272, 303, 304, 308, *range(428, 434), 442)
"""pivot_root, chroot, mount, umount2, unshare, *_handle_at, setns, and the mount calls of Linux 5.2 and later."""
KERNEL = (246, 320, 175, 313, 176, 321, 298, 323, 248, 249, 250, 425, 426, 427, 135, 169, 172, 173)
"""kexec, modules, bpf, perf_event_open, userfaultfd, keys, io_uring (unseen by seccomp), personality, reboot, ports."""
SHARED = (29, 30, 31, 64, 65, 66, 68, 69, 70, 240, 241)
"""System V memory, semaphores and messages, and POSIX queues: they outlive their process."""
SESSIONS = (109, 112)
"""setpgid, setsid: the memory limit counts the process group."""
PROCESSES = (57, 58, 59, 322)
"""fork, vfork, execve, execveat."""

MODES = (90, 91, 268, 452, 92, 93, 94, 260, 132, 235, 261, 280, *range(188, 191), *range(197, 200))
"""chmod, chown, utime and setxattr, each with its kin: what Landlock does not know of a file."""


def keep_modes() -> bool:
    """Have calls for modes, owners, times and attributes of files do nothing and say that they did.

    For a program of the user's: many take such a refusal for their end. False as ``refuse``.
    """
    return os.uname().machine == "x86_64" and _install(_program([*_unless_all(MODES, 0)]))


def refuse(*, processes: bool, becomes: bool = False) -> bool:
    """Install the filter in the calling thread; False where the kernel or the architecture has none.

    Refused are the network, other processes, mounts, the kernel's own interfaces and what outlives a process, and,
    unless ``processes``, every new process and every program: threads stay. ``becomes``: it may become another one.
    """
    if os.uname().machine != "x86_64":
        return False
    return _install(_filter(processes=processes, becomes=becomes, own=os.getpid()))


def _install(code: bytes) -> bool:
    program = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(program)))
    try:
        syscall(_SECCOMP, _SET_MODE_FILTER, 0, header)
    except OSError:
        return False
    return True


def _filter(*, processes: bool, becomes: bool, own: int) -> bytes:
    new = set() if processes else {*PROCESSES} - ({_EXECVE} if becomes else set())
    denied = (*NETWORK, *OTHERS, *MOUNTS, *KERNEL, *SHARED, *SESSIONS, *new)
    code = _unless(_CLONE3, errno.ENOSYS)  # its flags are out of reach, and the C library falls back to clone
    code += _unless_all(denied, errno.EPERM)
    if not processes:
        code += _argument(_CLONE, (_ANY_BIT, _CLONE_THREAD))
        for number in (_KILL_CALL, _TGKILL):
            code += _argument(number, (_EQUAL, own))
    return _program(code)


def _program(rules: list[tuple[int, int, int, int]]) -> bytes:
    """A filter with these rules for calls of this architecture; what they say nothing of is allowed."""
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT_ARCH_X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_ABOVE, 0, 1, _X32),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        *rules,
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *one) for one in code)


def _unless_all(numbers: Iterable[int], error: int) -> list[tuple[int, int, int, int]]:
    return [rule for number in sorted(set(numbers)) for rule in _unless(number, error)]


def _unless(number: int, error: int) -> list[tuple[int, int, int, int]]:
    return [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]


def _argument(number: int, test: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    """The call is allowed where its first argument passes the test."""
    what, value = test
    return [
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (what, 1, 0, value),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER),
    ]
