"""The static check and the check of the seven symbols, without a process."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.exam.candidate import contract
from ratchet.values.status import Refusal, Status
from tests.kernels import ATTENTION, CANDIDATES, LAYERNORM
from tests.refusals import refused


@pytest.mark.parametrize("source", [ATTENTION, LAYERNORM])
def test_honest_kernels_pass(source):
    contract.check_source(source.encode(), "kernel.py")


def test_the_repository_kernel_passes():
    contract.check_source((CANDIDATES.parents[1] / "kernel.py").read_bytes(), "kernel.py")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("import os", "import of os"),
        ("import jax._src.core", "import of jax._src.core"),
        ("from jax.experimental.pallas.ops.tpu import flash_attention", "pallas.ops"),
        ("from jax.experimental.pallas import ops", "pallas.ops"),
        ("from . import x", "import of"),
        ("from jax import *", "import of jax.*"),
        ("import jax\njax.numpy.allclose = None", "write to an attribute of the imported jax"),
        ("import jax\ndel jax.numpy", "write to an attribute"),
        ("import jax\nsetattr(jax, 'x', 1)", "setattr"),
        ("eval('1')", "use of eval"),
        ("().__class__.__bases__", "access to .__class__"),
        ("__builtins__", "access to __builtins__"),
        ("open('results.tsv', 'w')", "use of open"),
        ("import numpy as np\ngetattr(np, 'o' + 's')", "getattr with a computed name"),
    ],
)
def test_forbidden_lines_are_named(line, named):
    with refused(Status.FORBIDDEN, r"kernel\.py:") as caught:
        contract.check_source(line.encode(), "kernel.py")
    assert named in caught.value.message


def test_all_forbidden_lines_are_named_at_once():
    with pytest.raises(Refusal) as caught:
        contract.check_source(b"import os\nimport sys\neval('1')", "kernel.py")
    assert all(f"kernel.py:{n}:" in caught.value.message for n in (1, 2, 3))


@pytest.mark.parametrize("source", [b"x = (", b"def f(:", b"\xff\xfe", b"(" * 5000])
def test_bad_syntax_is_one_line(source):
    with refused(Status.SYNTAX_ERROR) as caught:
        contract.check_source(source, "kernel.py")
    assert "\n" not in caught.value.message


@given(st.binary(max_size=200))
def test_any_bytes_are_accepted_or_refused(source):
    with contextlib.suppress(Refusal):
        contract.check_source(source, "kernel.py")


def test_all_missing_and_mistyped_symbols_are_named_at_once():
    with refused(Status.CONTRACT) as caught:
        contract.check_symbols({"KERNEL_NAME": 3, "kernel_fn": "no", "PROBLEM_DESCRIPTION": " "})
    assert "KERNEL_NAME is int" in caught.value.message
    assert "kernel_fn is str" in caught.value.message
    assert all(f"{name} is missing" in caught.value.message for name in ("reference_fn", "generate_inputs"))


def test_meta_disagreements_are_named_at_once():
    meta = {"grid": [0], "buffers": [{"name": "q"}], "inputs": 3, "outputs": [], "vreg_estimate_bytes": 1.5}
    with pytest.raises(Refusal) as caught:
        contract.check_tiling_meta(meta)
    for part in ("grid is [0]", "buffers[0] lacks size_bytes (int), double_buffered (bool)", "inputs is int", "vreg"):
        assert part in caught.value.message


def test_meta_that_is_not_plain_json_breaks_the_contract():
    meta = {"grid": [1], "buffers": [], "inputs": [], "outputs": [], "vreg_estimate_bytes": 1}
    assert contract.check_tiling_meta(meta | {"more": [1.5, None]})
    loop = {}
    loop["itself"] = loop
    for more in (object(), {(1, 2): 3}, loop):
        with refused(Status.CONTRACT, "it is not plain JSON"):
            contract.check_tiling_meta(meta | {"more": more})


@pytest.mark.parametrize("meta", [{"grid": [10**4000]}, {"grid": [1 << 40] * 1000}, {"x": [{"y": -(10**4000)}]}])
def test_a_claim_without_bound_is_refused(meta):
    with refused(Status.CONTRACT, "63 bits"):
        contract.check_tiling_meta(meta)


def test_every_claim_may_be_left_out():
    assert contract.check_tiling_meta({}) == {}
    contract.check_symbols({"KERNEL_NAME": "k", "PROBLEM_DESCRIPTION": "p"} | dict.fromkeys(FUNCTIONS, len))


FUNCTIONS = ("kernel_fn", "reference_fn", "generate_inputs", "compute_flops")
