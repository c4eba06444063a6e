"""Calls of the system that Python has no function for."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = """
import resource
from ratchet.jail import system
system.reuse_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(b"1") * (256 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults(), faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no such setting")
def test_memory_that_was_freed_is_used_again():
    """A page that the system hands out anew is a fault."""
    root = Path(__file__).parent.parent.parent
    said = subprocess.run([sys.executable, "-c", FAULTS], cwd=root, capture_output=True, text=True, check=True).stdout
    first, second = map(int, said.split())
    assert second < first / 4
