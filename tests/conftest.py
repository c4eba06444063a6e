"""What every test process needs."""

import signal
import subprocess

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, however long one takes: no test fails by chance, or because the machine is busy.
settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# A shell that starts the tests in the background, or nohup, has these ignored, and every child would inherit that: the
# tests that interrupt a run could not. A handler, unlike an ignored signal, is reset to the default in a child.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a file system is not permitted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
