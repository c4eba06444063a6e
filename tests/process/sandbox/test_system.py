"""Calls of the system that Python has no function for, and what a child asks for its namespaces."""

import ctypes
import errno
import os
import platform
import signal
import subprocess
import sys

import pytest

from ratchet.process.boot import children
from ratchet.process.sandbox import namespaces, system, warm
from tests.imports import HERE

JEMALLOC = warm.preload(children.packages())

FAULTS = """
import resource
from ratchet.process.sandbox import system
{setting}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(b"1") * (256 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults(), faults())
"""


def faults(setting, **variables):
    """Pages that are handed out for a large block, and for another once that is freed: a new one is a fault."""
    root = HERE
    command = [sys.executable, "-c", FAULTS.replace("{setting}", setting)]
    said = subprocess.run(command, cwd=root, env=os.environ | variables, capture_output=True, text=True, check=True)
    return map(int, said.stdout.split())


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no such setting")
def test_memory_that_was_freed_is_used_again():
    first, second = faults("system.reuse_memory()")
    assert second < first / 4


@pytest.mark.skipif(not JEMALLOC, reason="it is not in this environment")
def test_jemalloc_keeps_what_is_freed_once_it_is_told_to():
    first, second = faults("assert system.keep_memory()", **JEMALLOC)
    assert second < first / 4
    first, second = faults("bytearray(256 << 20); system.keep_memory()", **JEMALLOC)  # it has an arena for them then
    assert second < first / 4


def test_another_allocator_is_left_alone():
    first, second = faults("assert not system.keep_memory()")
    assert min(first, second) > 0


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
