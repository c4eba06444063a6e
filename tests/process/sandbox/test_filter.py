"""What the filter of system calls lets through, call by call, and which files Landlock is asked to leave."""

import ctypes
import errno
import os
import struct
from pathlib import Path

import pytest

from ratchet.process.sandbox import landlock, seccomp

DENIED = {
    "socket": 41, "connect": 42, "accept": 43, "bind": 49, "listen": 50, "accept4": 288,
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_send_signal": 424,
    "pidfd_open": 434, "pidfd_getfd": 438, "tkill": 200, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
    "pivot_root": 155, "chroot": 161, "mount": 165, "umount2": 166, "unshare": 272, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "setns": 308, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "mount_setattr": 442,
    "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176,
    "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "add_key": 248, "request_key": 249, "keyctl": 250,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "personality": 135, "reboot": 169,
    "iopl": 172, "ioperm": 173,
    "shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "semop": 65, "semctl": 66, "msgget": 68, "msgsnd": 69,
    "msgrcv": 70, "mq_open": 240, "mq_unlink": 241,
    "setpgid": 109, "setsid": 112,
}  # fmt: skip
"""By the kernel's table for x86-64."""
PROCESSES = {"fork": 57, "vfork": 58, "execve": 59, "execveat": 322}
CLONE, CLONE3, KILL, TGKILL = 56, 435, 62, 234
CLONE_THREAD = 0x10000
X86_64, I386 = 0xC000003E, 0x40000003
LOAD, EQUAL, NOT_BELOW, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOWED, PERM, NOSYS, KILLED = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000


@pytest.fixture
def installed(monkeypatch):
    """What is asked of the kernel for a filter: the instructions, by whether processes are allowed."""

    def asked(processes):
        calls = []

        def syscall(*arguments):
            number, mode, flags, header = arguments
            count, address = struct.unpack("HxxxxxxQ", header.raw[:16])
            calls.append((number, mode, flags))
            code = ctypes.string_at(address, 8 * count)
            calls.append(list(struct.iter_unpack("HBBI", code)))
            return 0

        monkeypatch.setattr(seccomp, "syscall", syscall)
        monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "", "", "", "x86_64")))
        assert seccomp.refuse(processes=processes)
        assert calls[0] == (317, 1, 0), "seccomp(SECCOMP_SET_MODE_FILTER, 0, …)"
        return calls[1]

    return asked


def answer(code, number, argument=0, architecture=X86_64):
    """What a filter says of a system call, as the kernel runs it."""
    data = struct.pack("IIQQ", number, architecture, 0, argument)
    place = accumulator = 0
    while True:
        what, true, false, value = code[place]
        place += 1
        if what == RETURN:
            return value
        if what == LOAD:
            (accumulator,) = struct.unpack_from("I", data, value)
        else:
            holds = {
                EQUAL: accumulator == value,
                NOT_BELOW: accumulator >= value,
                ANY_BIT: bool(accumulator & value),
            }
            place += true if holds[what] else false


@pytest.mark.parametrize("processes", [True, False])
def test_every_system_call_is_allowed_or_refused_as_it_is_named(installed, processes):
    code = installed(processes)
    denied = {*DENIED.values(), *(() if processes else PROCESSES.values())}
    special = {CLONE3: NOSYS} | ({} if processes else {CLONE: PERM, KILL: PERM, TGKILL: PERM})
    for number in range(600):
        wanted = special.get(number, PERM if number in denied else ALLOWED)
        assert answer(code, number) == wanted, number


def test_threads_and_signals_to_itself_stay(installed):
    code = installed(False)
    assert answer(code, CLONE, CLONE_THREAD | 0x100) == ALLOWED
    assert answer(code, CLONE, CLONE_THREAD - 1) == PERM
    assert answer(code, CLONE, CLONE_THREAD << 1) == PERM
    for call in (KILL, TGKILL):
        assert answer(code, call, os.getpid()) == ALLOWED
        for process in (os.getpid() + 1, os.getpid() - 1, os.getppid(), 2**32 - 1):
            assert answer(code, call, process) == PERM
    for call in (CLONE, KILL, TGKILL):
        assert answer(installed(True), call, 0) == ALLOWED


def test_other_ways_to_name_a_call_are_closed(installed):
    """The 32-bit numbers of a 64-bit program, and those of another architecture."""
    code = installed(True)
    assert answer(code, 0x40000000) == answer(code, 0x40000000 | 41) == answer(code, 2**32 - 1) == NOSYS
    assert answer(code, 0x3FFFFFFF) == ALLOWED
    assert answer(code, 1, architecture=I386) == KILLED


def test_an_architecture_whose_numbers_are_not_known_has_no_filter(monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "", "", "", "riscv64")))
    monkeypatch.setattr(seccomp, "syscall", lambda *_: pytest.fail("asked"))
    assert seccomp.refuse(processes=True) is False


def test_a_kernel_that_refuses_a_filter_has_none(monkeypatch):
    def refused(*_):
        raise OSError(errno.EINVAL, "")

    monkeypatch.setattr(seccomp, "syscall", refused)
    assert seccomp.refuse(processes=True) is False


WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = 2, 4, 8, 16, 32
MAKE_DIR, MAKE_REG, REFER, TRUNCATE, IOCTL_DEV = 128, 256, 1 << 13, 1 << 14, 1 << 15
FIRST = (1 << 13) - 1
"""All rights of the first version, executing and making links, pipes, sockets and devices among them."""
READ = READ_FILE | READ_DIR
WRITE = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG


def asked_of(monkeypatch, tmp_path, have):
    """What Landlock of a version is asked for: the ruleset, its size, and the rights by path."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    rules, calls, closed = {}, [], []

    def syscall(number, *arguments):
        if number == 444 and arguments == (0, 0, 1):
            return have
        calls.append(number)
        if number == 444:
            attributes, size, flags = arguments
            assert flags == 0
            rules["ruleset"] = (struct.unpack("QQQ", bytes(attributes._obj)), size)
            return os.open("/dev/null", os.O_RDONLY)
        if number == 445:
            _, kind, rule, flags = arguments
            assert (kind, flags) == (1, 0)
            rights, parent = struct.unpack("=Qi", bytes(rule._obj))
            rules[Path(os.readlink(f"/proc/self/fd/{parent}")).name] = rights
            closed.append(parent)
        return 0

    monkeypatch.setattr(landlock, "syscall", syscall)
    readable = [str(tmp_path / name) for name in ("folder", "no such")]
    assert landlock.restrict(readable=readable, writable=[str(tmp_path), str(tmp_path / "file")])
    assert calls == [444, 445, 445, 445, 446]
    for descriptor in closed:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    return rules


@pytest.mark.parametrize(
    ("have", "denied", "network", "scoped", "size", "truncate"),
    [
        (1, FIRST, 0, 0, 8, 0),
        (2, FIRST | REFER, 0, 0, 8, 0),
        (3, FIRST | REFER | TRUNCATE, 0, 0, 8, TRUNCATE),
        (4, FIRST | REFER | TRUNCATE, 3, 0, 16, TRUNCATE),
        (5, FIRST | REFER | TRUNCATE | IOCTL_DEV, 3, 0, 16, TRUNCATE),
        (6, FIRST | REFER | TRUNCATE | IOCTL_DEV, 3, 3, 24, TRUNCATE),
        (9, FIRST | REFER | TRUNCATE | IOCTL_DEV, 3, 3, 24, TRUNCATE),
    ],
)
def test_what_each_version_of_landlock_denies(monkeypatch, tmp_path, have, denied, network, scoped, size, truncate):
    rules = asked_of(monkeypatch, tmp_path, have)
    assert rules["ruleset"] == ((denied, network, scoped), size)
    assert rules["folder"] == READ
    assert rules[tmp_path.name] == WRITE | truncate
    assert rules["file"] == READ_FILE | WRITE_FILE | truncate, "nothing below a file is made or removed"
