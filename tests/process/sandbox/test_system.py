"""Calls of the system that Python has no function for."""

import os
import platform
import subprocess
import sys

import pytest

from ratchet.process.boot import children
from ratchet.process.sandbox import warm
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
