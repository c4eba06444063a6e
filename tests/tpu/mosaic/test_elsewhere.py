"""Kernels written elsewhere, through the benchmark that shows them all: `python -m benchmarks.verify`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.imports import HERE


def _verify(*names: str) -> str:
    # A process of its own: the number of virtual devices is decided before JAX is imported.
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-m", "benchmarks.verify", "--only", *names]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_narrow_types_and_overlapping_windows() -> None:
    assert "5 of 5 equal" in _verify("fp8", "int4", "uint4", "element_windows", "squeezed")


@pytest.mark.slow
def test_every_other_kernel_equals_interpret_mode() -> None:
    names = (
        "all_gather", "flash", "splash", "splash_backward", "paged", "ragged_paged", "gmm", "tgmm", "matmul",
        "emit_pipeline",
    )  # fmt: skip
    assert f"{len(names)} of {len(names)} equal" in _verify(*names)
