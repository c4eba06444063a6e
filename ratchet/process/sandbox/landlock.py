"""Landlock: which files this process may read and write from now on. include/uapi/linux/landlock.h"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from stat import S_ISDIR

from ratchet.process.sandbox import seccomp
from ratchet.process.sandbox.system import PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, prctl, syscall

# The same numbers on every architecture: include/uapi/asm-generic/unistd.h
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_CREATE_RULESET_VERSION = 1

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG = 1 << 7, 1 << 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_OF_VERSION = ((1, (1 << 13) - 1), (2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
"""Rights that are denied unless granted, by the version that brought them."""
_READ = _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _TRUNCATE
"""Regular files and folders: no links, pipes, sockets or devices, and nothing is executed."""
_EXECUTE = 1 << 0
_OF_FILES = _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE
_NO_WRITE = _EXECUTE | _READ_FILE | _READ_DIR | _IOCTL_DEV
"""Rights that change no file."""
_FILE_BYTES = 1 << 30
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts")
"""What a program of the user's may write anywhere: the size of a file, and devices."""
OWN = "/proc/self"
_NO_TCP, _TCP_VERSION = 0b11, 4
_SCOPED, _SCOPE_VERSION = 0b11, 6
"""No abstract Unix sockets, and no signals, to processes outside."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """The version of Landlock that this kernel has; 0 where it has none or refuses it."""
    try:
        return syscall(_CREATE_RULESET, 0, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict(*, readable: Iterable[str], writable: Iterable[str], programs: Iterable[str] = ()) -> bool:
    """Confine the calling thread, and what it starts, to these files and folders; False where there is no Landlock.

    ``programs`` are files that it may execute. Paths that do not exist are left out. The thread has to have given up
    new privileges.
    """
    have = version()
    if not have:
        return False
    handled = _handled(have)
    attributes = _Ruleset(handled, _NO_TCP if have >= _TCP_VERSION else 0, _SCOPED if have >= _SCOPE_VERSION else 0)
    size = 24 if have >= _SCOPE_VERSION else 16 if have >= _TCP_VERSION else 8
    paths = [*((path, _READ & handled) for path in readable), *((path, _WRITE & handled) for path in writable)]
    paths += ((path, _EXECUTE | _READ_FILE) for path in programs)
    _enforce(attributes, size, paths)
    return True


def confine(writable: Sequence[Path], hidden: Path | None = None) -> None:
    """Confine a program of the user's: it may run anything, write below ``writable``, read what is not hidden.

    Modes, owners and times of files it cannot change at all, on x86-64.

    For a new process, before it becomes the program. Paths are of folders, or of single files, which are written in
    place. Files below ``hidden`` cannot be read, nor those that come to be beside it and its parents. Without Landlock
    nothing is confined except the size of a file. It ends with the process that started it.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # a lower limit is there already
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    have = version()
    if have:
        read = _READ_FILE if hidden else 0
        handled = _handled(have) & ~_NO_WRITE | read
        may = [(path, handled) for path in (*map(os.fspath, writable), *_DEVICES)]
        _enforce(_Ruleset(handled, 0, 0), 8, [*may, *((path, read) for path in _beside(hidden) if read)])
    seccomp.keep_modes()


def _beside(hidden: Path | None) -> Iterator[str]:
    """All that is in a folder on the way to ``hidden`` and does not lead there; no links, which could."""
    for folder in hidden.parents if hidden else ():
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_symlink() and not hidden.is_relative_to(entry.path):  # type: ignore[union-attr]
                    yield entry.path


def _handled(have: int) -> int:
    """All rights that a version of Landlock denies unless they are granted."""
    return sum(rights for since, rights in _OF_VERSION if have >= since)


def _enforce(attributes: _Ruleset, size: int, allowed: Iterable[tuple[str, int]]) -> None:
    ruleset = syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    for path, rights in allowed:
        _allow(ruleset, path, rights)
    syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not S_ISDIR(os.fstat(parent).st_mode):
        rights &= _OF_FILES
    syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(_PathBeneath(rights, parent)), 0)
    if path == OWN:  # the system makes such a folder anew once nobody holds it, and no rule is for the new one
        os.set_inheritable(parent, True)
    else:
        os.close(parent)
