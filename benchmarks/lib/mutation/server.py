"""Runs tests on request in a fork of itself, so that only the first of many runs waits for the libraries.

Reads lines of test paths, separated by tabs, from standard input; answers each with pytest's exit code. What the tree
itself holds is imported by the fork alone: it is what changes from run to run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

LIBRARIES = ("numpy", "ml_dtypes", "jax", "jax.numpy", "jax.experimental.pallas.tpu", "hypothesis", "pytest")


def run(tests: Sequence[str]) -> int:
    """pytest's exit code, from a process of its own."""
    process = os.fork()
    if not process:
        os.setsid()
        log = os.open("tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        import pytest

        code = 3
        try:
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    for library in LIBRARIES:
        __import__(library)
    import hypothesis

    # A busy machine must not look like a test that notices, nor a lucky draw like a good test.
    hypothesis.settings.register_profile("mutants", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("mutants")
    sys.path[0] = os.getcwd()  # in the place of this file's folder
    for line in sys.stdin:
        print(run(line.rstrip("\n").split("\t")), flush=True)
