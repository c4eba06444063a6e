"""What Linux is asked for when a child gets namespaces and gives up its rights."""

import ctypes
import errno
import os
import signal

import pytest

from ratchet.process.sandbox import namespaces, system

NEW = {
    "NEWNS": 0x00020000, "NEWCGROUP": 0x02000000, "NEWUTS": 0x04000000, "NEWIPC": 0x08000000, "NEWUSER": 0x10000000,
    "NEWPID": 0x20000000, "NEWNET": 0x40000000,
}  # fmt: skip
"""By clone(2)."""


def machine(monkeypatch, name):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "", "", "", name)))


@pytest.mark.parametrize(("name", "number"), [("x86_64", 56), ("aarch64", 220)])
def test_a_process_of_its_own_in_every_kind_of_namespace(monkeypatch, tmp_path, name, number):
    calls = []

    def refused(*arguments):
        calls.append(arguments)
        raise OSError(errno.EPERM, "")

    monkeypatch.setattr(namespaces, "syscall", refused)
    machine(monkeypatch, name)
    before = os.listdir("/proc/self/fd")
    assert namespaces.fork(str(tmp_path), folder_bytes=0, folder_files=0) is None
    assert calls == [(number, sum(NEW.values()) | signal.SIGCHLD, 0, 0, 0, 0)]
    assert os.listdir("/proc/self/fd") == before


def test_an_architecture_whose_numbers_are_not_known_has_no_namespaces(monkeypatch, tmp_path):
    monkeypatch.setattr(namespaces, "syscall", lambda *_: pytest.fail("asked"))
    machine(monkeypatch, "riscv64")
    assert namespaces.fork(str(tmp_path), folder_bytes=0, folder_files=0) is None


@pytest.mark.parametrize(("name", "number"), [("x86_64", 126), ("aarch64", 91)])
@pytest.mark.parametrize("last", [40, 63])
def test_every_capability_is_dropped_and_none_is_kept(monkeypatch, name, number, last):
    dropped, given = [], []

    def prctl(option, value):
        if value > last:
            raise OSError(errno.EINVAL, "")
        dropped.append((option, value))

    def syscall(asked, header, data):
        given.append((asked, list(header), list(data)))

    monkeypatch.setattr(system, "prctl", prctl)
    monkeypatch.setattr(system, "syscall", syscall)
    machine(monkeypatch, name)
    system.drop_capabilities()
    assert dropped == [(24, capability) for capability in range(last + 1)]
    assert given == [(number, [0x20080522, 0], [0] * 6)]


def test_errors_of_the_system_are_errors():
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        system.syscall({"x86_64": 3, "aarch64": 57}[os.uname().machine], -1)  # close
    assert caught.value.errno == errno.EBADF
    with pytest.raises(OSError, match="Invalid argument"):
        system.prctl(-1)
    with pytest.raises(OSError, match=r"No such (file|device)|not permitted") as caught:
        system.mount("no-such-kind", "/no/such/place", 0)
    assert caught.value.filename == "/no/such/place"


def test_arguments_reach_the_system_whole():
    read, write = os.pipe()
    text = ctypes.create_string_buffer(b"abc")
    number = {"x86_64": 1, "aarch64": 64}[os.uname().machine]  # write
    assert system.syscall(number, write, text, 3) == 3
    assert os.read(read, 10) == b"abc"
    os.close(read)
    os.close(write)


def test_what_is_set_is_what_is_asked_for():
    """Of this process, and put back."""
    get_deathsig = 2
    value = ctypes.c_int()
    libc = ctypes.CDLL(None)
    for wanted in (signal.SIGUSR2, 0):
        system.prctl(system.PR_SET_PDEATHSIG, wanted)
        libc.prctl(get_deathsig, ctypes.byref(value))
        assert value.value == wanted
    assert (system.PR_CAPBSET_DROP, system.PR_SET_CHILD_SUBREAPER, system.PR_SET_NO_NEW_PRIVS) == (24, 36, 38)
