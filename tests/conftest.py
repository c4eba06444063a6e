"""What every test process needs. One set of the judge's children is shared by all tests of a process."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from ratchet.exam.judge.workers import Workers
from ratchet.process.sandbox.child import Limits
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler import compile as compiling
from ratchet.values import Artefact, Program
from ratchet.values.status import Refusal
from tests.imports import OLDER_JAX

# Compiling for the CPU takes most of the tests' time that run kernels, and running next to none. Read as JAX starts.
# What is fused by MLIR takes twice as long to compile, and is faster for large arrays only.
QUICKLY = "--xla_backend_optimization_level=0"
if OLDER_JAX:  # a later XLA has nothing else
    QUICKLY += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}".strip()

# No process of a test's stays behind, and none is used that another test left.
os.environ["RATCHET_STANDBY_MINUTES"] = "0"

# The same examples in every run, however long one takes: no test fails by chance, or because the machine is busy.
settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# A shell that starts the tests in the background, or nohup, has these ignored, and every child would inherit that: the
# tests that interrupt a run could not. A handler, unlike an ignored signal, is reset to the default in a child.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


MEMORY, PLENTY_BYTES = "/dev/shm", 8 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Keep what the tests write, up to 3 GiB, in memory where there is plenty: turns mostly wait for the disk.

    Before the processes of xdist start, which get it from here.
    """
    if hasattr(config, "workerinput") or "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    if shutil.disk_usage(MEMORY).free > PLENTY_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="ratchet-tests-", dir=MEMORY)
        os.chmod(tempfile.tempdir, 0o755)  # some tests are run as another user
        config.add_cleanup(lambda: shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True))


@pytest.fixture
def small_disk(tmp_path, request):
    """A real file system of 64 KiB, or of the size that is asked for."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={getattr(request, 'param', '64k')}", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a file system is not permitted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def without_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is flushed to the disk, which is most of a turn's time: for tests that cut no power."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setenv("GIT_TEST_FSYNC", "0")


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Their start is most of what a small verdict costs."""
    with Workers(V5E, keep=True, compiles=False) as kept:  # the compiler starts once it is asked for
        yield kept


@pytest.fixture(scope="session")
def compiled(workers: Workers) -> Callable[[Artefact], Program]:
    def compile_it(artefact: Artefact) -> Program:
        return compiling.compile_artefact(artefact, V5E, workers.folder("test"), workers.compiler)

    return compile_it


@pytest.fixture
def not_compiled(workers: Workers) -> Callable[..., Refusal]:
    """Compiles what has to be refused and returns the refusal."""

    def compile_it(artefact: Artefact, **limits: Any) -> Refusal:
        wanted = Limits(**{"seconds": 120, "memory_bytes": 8 << 30, **limits})
        with pytest.raises(Refusal) as caught:
            compiling.compile_artefact(artefact, V5E, workers.folder("test"), workers.compiler, wanted)
        assert len(caught.value.message.splitlines()) <= 3, "what, where, and the operation"
        return caught.value

    return compile_it
