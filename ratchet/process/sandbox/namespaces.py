"""A process in namespaces of its own: users, processes, network, mounts, System V objects. unshare(2), clone(2)"""

from __future__ import annotations

import os
import signal

from ratchet.process.sandbox import system
from ratchet.process.sandbox.system import MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_REC, syscall

_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
# include/uapi/linux/sched.h
_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_ALL = _NEWNS | _NEWCGROUP | _NEWUTS | _NEWIPC | _NEWUSER | _NEWPID | _NEWNET

_PLAIN = MS_NOSUID | MS_NODEV | MS_NOEXEC


def fork(folder: str, *, folder_bytes: int, folder_files: int) -> int | None:
    """As ``os.fork``, into new namespaces; None where the system offers none of them to this user.

    The child is the first process of its namespace: nothing in it outlives it. It sees its own /proc, and in the
    place of ``folder`` an empty one in memory, of limited size, where ``folder_bytes`` is not 0.
    """
    (named, name), (furnished, furnish) = os.pipe(), os.pipe()
    user, group = os.getuid(), os.getgid()
    try:
        child = syscall(_SYS_CLONE[os.uname().machine], _ALL | signal.SIGCHLD, 0, 0, 0, 0)
    except (OSError, KeyError):
        child = -1
    if child == 0:
        os.close(name)
        os.close(furnished)
        if not os.read(named, 1) or not _furnished(folder, folder_bytes, folder_files):
            os._exit(1)
        os.write(furnish, b"x")
        os.close(named)
        os.close(furnish)
        return 0
    os.close(named)
    os.close(furnish)
    with os.fdopen(name, "wb", buffering=0) as to_child, os.fdopen(furnished, "rb", buffering=0) as from_child:
        if child > 0 and _name(child, user, group):
            to_child.write(b"x")
            if from_child.read(1):
                return child
    if child > 0:
        os.waitpid(child, 0)
    return None


def _name(child: int, user: int, group: int) -> bool:
    """Give the child the same user and group inside as outside, so that files stay its own."""
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write(text)
    except OSError:
        return False
    return True


def _furnished(folder: str, folder_bytes: int, folder_files: int) -> bool:
    try:
        system.mount("", "/", MS_REC | MS_PRIVATE)
        system.mount("proc", "/proc", _PLAIN)
        if folder_bytes:
            system.mount("tmpfs", folder, _PLAIN, f"size={folder_bytes},nr_inodes={folder_files},mode=700")
    except OSError:
        return False
    return True
