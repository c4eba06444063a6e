"""What the compiler says of the operator's programs, and the operator on several chips."""

import os
import subprocess
import sys

import pytest

from benchmarks.lib.attention.cases import attention_programs
from benchmarks.longest import CONFIGS
from ratchet.process.sandbox.child import PACKAGE_ROOT


@pytest.mark.slow
def test_no_array_of_queries_by_keys_is_in_hbm(tmp_path):
    length = 16384
    shape = {"batch": 1, "heads": 2, "kv_heads": 1, "seq": length, "dim": 128, "causal": True}
    recipe = {"impl": "ours", "shape": shape, "grad": True, "config": CONFIGS["ours"], "memory_only": True}
    programs = attention_programs(tmp_path)
    programs.fill([recipe], lambda _line: None)
    figures = programs.find(recipe)
    operand = 2 * length * 128 * 2
    assert figures["temp_bytes"] < 4 * operand < length**2 // 4, "not even a quarter of it, in bytes"
    assert figures["peak_bytes"] > 4 * operand


@pytest.mark.slow
def test_batch_and_heads_are_sharded_over_four_chips():
    done = subprocess.run(
        [sys.executable, "-m", "tests.pallas_flash.sharded"],
        cwd=PACKAGE_ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("sharded as on one\n"), done.stderr[-2000:]
