"""Runs tests on request in a fork of itself, so that only the first of many runs waits for the libraries.

Reads JSON lines from standard input: ``tests``, the ``seconds`` of processor time they may take, and ``files`` whose
lines are noted in ``ran.json`` (see ``recorder.py``) or null. Answers each with pytest's exit code. What the tree
itself holds is imported by the fork alone: it is what changes from run to run.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

LIBRARIES = ("numpy", "ml_dtypes", "jax", "jax.numpy", "jax.experimental.pallas.tpu", "hypothesis", "pytest")
QUIET = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")


def run(tests: Sequence[str], seconds: int, files: Sequence[str] | None) -> int:
    """pytest's exit code, from a process of its own."""
    process = os.fork()
    if not process:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        log = os.open("tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        code = 3
        try:
            code = _run_here(tests, files)
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def _run_here(tests: Sequence[str], files: Sequence[str] | None) -> int:
    import pytest

    if files is None:
        return int(pytest.main([*QUIET, *tests]))
    from benchmarks.lib.mutation.recorder import Recorder

    recorder = Recorder(files)
    code = int(pytest.main([*QUIET, *tests], plugins=[recorder]))
    Path("ran.json").write_text(json.dumps(recorder.tests()))
    return code


if __name__ == "__main__":
    for library in LIBRARIES:
        __import__(library)
    import hypothesis

    # A busy machine must not look like a test that notices, nor a lucky draw like a good test.
    hypothesis.settings.register_profile("mutants", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("mutants")
    sys.path[0] = os.getcwd()  # in the place of this file's folder
    for line in sys.stdin:
        print(run(**json.loads(line)), flush=True)
