"""Kernel files as text, changed for a benchmark."""

import pytest

from benchmarks.lib.sources import ROOT, edited
from benchmarks.verdict.__main__ import ARGUMENTS, named


def test_arguments_become_constants_that_a_sweep_can_change():
    source = "import x\n\nBLOCKS = x.Blocks(block_q=512, rows=64)  # a choice\n"
    new = named(source, ["block_q", "rows"])
    assert new == ("import x\n\nBLOCK_Q = 512\nROWS = 64\nBLOCKS = x.Blocks(block_q=BLOCK_Q, rows=ROWS)  # a choice\n")
    assert "ROWS = 128\n" in edited(new, ROWS=128)
    with pytest.raises(ValueError, match="0 lines set C"):
        edited(new, C=2)
    assert named(source, []) == source
    with pytest.raises(ValueError, match="0 arguments strip"):
        named(source, ["strip"])


def test_the_benchmarks_kernel_has_such_arguments():
    source = (ROOT / "pallas_flash" / "kernels" / "flash_forward.py").read_text()
    new = named(source, ARGUMENTS["flash_forward"])
    assert "block_q=BLOCK_Q, block_kv=BLOCK_KV, unroll=UNROLL" in new
    assert "\nBLOCK_KV = 512\n" in new
