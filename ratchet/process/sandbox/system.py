"""The few calls of Linux that Python has no function for. Errors of the system are ``OSError``."""

from __future__ import annotations

import ctypes
import errno
import os

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

# include/uapi/linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

# include/uapi/linux/mount.h
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_REC, MS_PRIVATE = 0x4000, 0x40000

_OPENAT2 = 437  # the same on every architecture: include/uapi/asm-generic/unistd.h
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08  # include/uapi/linux/openat2.h
_AGAIN = 100
"""How often an open is tried that others' renames disturb."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # include/uapi/linux/fcntl.h, fs.h

# malloc.h of glibc
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4

_LAST_CAPABILITY = 63
_CAPABILITY_VERSION_3 = 0x20080522  # include/uapi/linux/capability.h
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}


def _failed(*path: str) -> OSError:
    """The error of the call before."""
    error = ctypes.get_errno()
    return OSError(error, os.strerror(error), *path)


def syscall(number: int, *arguments: object) -> int:
    """A system call by its number; all arguments are passed as words or pointers."""
    done = int(
        _LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    )
    if done < 0:
        raise _failed()
    return done


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(top: int, name: str, flags: int, mode: int) -> int:
    """Open what is below the folder ``top``: no link is followed, and no name leads out of it."""
    how = _How(flags, mode if flags & os.O_CREAT else 0, _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH)
    for left in reversed(range(_AGAIN)):
        try:
            return syscall(_OPENAT2, top, os.fsencode(name), ctypes.byref(how), ctypes.sizeof(how))
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR) or not left:
                raise
    raise AssertionError


def exchange(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> None:
    """Two names change places, in one step: renameat2 with RENAME_EXCHANGE."""
    if _LIBC.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        raise _failed(os.fspath(one))


def prctl(option: int, value: int = 0) -> None:
    """``prctl(option, value, 0, 0, 0)``."""
    if _LIBC.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        raise _failed()


def reuse_memory() -> None:
    """Use memory that was freed again, and give it back beyond 2 GiB: the system clears every page that it hands out.

    It does nothing with another C library than glibc.
    """
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_M_MMAP_MAX, 0)
        _LIBC.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def keep_memory() -> bool:
    """Where jemalloc is this process's allocator: keep what is freed from now on. It gives large blocks back at once.

    Whether it could be set.
    """
    if not hasattr(_LIBC, "mallctl"):
        return False
    count = ctypes.c_uint()
    size = ctypes.c_size_t(ctypes.sizeof(count))
    if _LIBC.mallctl(b"arenas.narenas", ctypes.byref(count), ctypes.byref(size), None, ctypes.c_size_t(0)):
        return False
    names = ["arenas.dirty_decay_ms", *(f"arena.{number}.dirty_decay_ms" for number in range(count.value))]
    never = ctypes.c_ssize_t(-1)
    size = ctypes.c_size_t(ctypes.sizeof(never))
    done = [_LIBC.mallctl(name.encode(), None, None, ctypes.byref(never), size) for name in names]
    return not done[0]  # an arena that has no memory yet refuses, and takes the first of them


def mount(kind: str, target: str, flags: int, options: str = "") -> None:
    """Mount a file system without a device, or change how one is mounted (``kind`` empty)."""
    name = kind.encode() or None
    if _LIBC.mount(name, os.fsencode(target), name, ctypes.c_ulong(flags), options.encode() or None):
        raise _failed(target)


def drop_capabilities() -> None:
    """Give up every capability for good: those of root, and those that a user namespace grants."""
    for number in range(_LAST_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, number)
        except OSError:  # without CAP_SETPCAP there is none to drop, beyond the last one no such capability
            break
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    syscall(_SYS_CAPSET[os.uname().machine], header, data)
