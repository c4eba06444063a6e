"""What is made of a kernel file, and why it is refused: of files that do no harm, so they need no child."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from benchmarks.lib.programs import of_source
from ratchet.exam.candidate import worker
from ratchet.exam.problem import problem
from ratchet.values import ArraySpec
from ratchet.values.status import Refusal, Status
from tests.exam.judge.programs import examined
from tests.imports import HERE
from tests.kernels import ATTENTION, edited
from tests.refusals import refused

TOP = 'KERNEL_NAME = "causal_flash_attention"'
JAX = "import dataclasses\ndataclasses.sys.modules['jax']"


def refusal(*edits):
    with pytest.raises(Refusal) as caught:
        of_source(edited(ATTENTION, *edits), freeze=False)
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("edits", "status", "said"),
    [
        ([(TOP, f"1 / 0\n{TOP}")], Status.IMPORT_FAILED, "ZeroDivisionError"),
        ([(TOP, f"raise SystemExit(0)\n{TOP}")], Status.IMPORT_FAILED, "SystemExit"),
        ([(TOP, f"{JAX}.config.update('x', 1)\n{TOP}")], Status.IMPORT_FAILED, "at import"),
        ([("BQ = 128", "BQ = 100")], Status.UNALIGNED_BLOCK, "kernel.py:"),
        ([("jnp.exp(scores - m_new)", "jnp.linalg.inv(scores[:128, :128])")], None, "kernel.py:"),
        ([("k_ref[...], (((1,)", "k_ref[0, ...], (((1,)")], Status.LOWERING_FAILED, "kernel.py:"),
        (
            [("def compute_flops():", "def compute_flops():\n    return 1.5\n\n\ndef _unused():")],
            Status.CONTRACT,
            "1.5",
        ),
        ([("return tuple(jax.random", "return 3, tuple(jax.random")], Status.CONTRACT, "must return arrays"),
        (
            [("SEQ // BKV),", "SEQ // BKV, int(np.random.rand() * 1e6) + 1),"), (TOP, f"import numpy as np\n{TOP}")],
            None,
            "",
        ),
        ([('"grid": [', '"grid": ["x", ')], Status.CONTRACT, "grid"),
        (
            [("p = jnp.exp(scores - m_new)", "p = jax.lax.erf_inv(jnp.sort(scores - m_new, axis=1))")],
            Status.UNSUPPORTED_PRIMITIVE,
            "",
        ),
    ],
    ids="raise SystemExit config unaligned inverse shape flops inputs random meta primitive".split(),
)
def test_what_happens_at_import_and_while_tracing(edits, status, said):
    found = refusal(*edits)
    if status is not None:
        assert found.status is status
    assert found.status.exit_code < 40
    assert said in found.message


def test_a_kernel_file_finds_the_compilers_modules_imported_in_a_process_of_its_own():
    """A new process has them, and a fork of one that traced kernels: what a file may reach is the same in both."""
    found = f"import sys, {worker.__name__}; print('jax._src.tpu_custom_call' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", found], text=True, cwd=HERE).strip() == "True"


def test_two_traces_that_differ_are_non_deterministic():
    found = refusal(("(HEAD_DIM**-0.5)", "float(np.random.rand())"), (TOP, f"import numpy as np\n{TOP}"))
    assert found.status in (Status.NON_DETERMINISTIC, Status.PROBLEM_CHANGED)


def test_what_jax_keeps_of_a_trace_hides_no_second_one():
    traces = []

    @jax.jit
    def inner(x):
        traces.append(x)
        return x * len(traces)

    aval = jax.ShapeDtypeStruct((8,), jnp.float32)
    with refused(Status.NON_DETERMINISTIC):
        worker.twice(lambda: worker.traced(lambda x: [inner(x)], [aval], "cpu"))
    assert worker.twice(lambda: worker.traced(lambda x: [x + 1], [aval], "cpu"))[1] is not None


def test_what_jax_cannot_export_is_said_of_the_kernel():
    found = refusal(
        ("def kernel_fn(q, k, v):\n", "def kernel_fn(q, k, v):\n    q = q.astype(jnp.int2)\n    return q\n")
    )
    assert found.status is Status.LOWERING_FAILED
    assert "written by jax.export: KeyError: dtype(int2)" in found.message


@pytest.fixture
def frozen():
    return examined(ATTENTION)[1]


@pytest.mark.parametrize(
    ("edits", "named"),
    [
        ([("return 2 * 2 * pairs", "return 4 * 2 * pairs")], "compute_flops()"),
        ([("columns <= rows, scores, -jnp.inf), axis=1", "columns < rows, scores, -1e9), axis=1")], "reference_fn"),
        ([("jax.random.normal(part", "0 * jax.random.normal(part")], "generate_inputs"),
        ([("SEQ = 1024", "SEQ = 512")], "input shapes"),
        ([("causal_flash_attention", "other")], "KERNEL_NAME"),
    ],
)
def test_a_changed_problem_is_refused_by_name(frozen, edits, named):
    artefact, _ = of_source(edited(ATTENTION, *edits), freeze=False)
    with refused(Status.PROBLEM_CHANGED, "--new-problem") as caught:
        problem.check_unchanged(artefact, frozen)
    assert named in caught.value.message


def test_a_wrong_output_dtype_is_refused(frozen):
    source = edited(
        ATTENTION,
        ("jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype)", "jax.ShapeDtypeStruct((SEQ, HEAD_DIM), jnp.float32)"),
    )
    artefact, _ = of_source(source, freeze=False)
    with refused(Status.WRONG_SHAPE, r"float32\[1024,128\]"):
        problem.check_outputs(artefact, frozen)


@pytest.mark.parametrize("blocked", [b"", b"a program"])
def test_a_lock_holds_the_reference_in_blocks_where_there_is_one(blocked):
    _, frozen = of_source(ATTENTION, freeze=True)
    frozen = dataclasses.replace(frozen, blocked_program=blocked)
    data = problem.encode(frozen)
    assert (b"blocked_program" in data) is bool(blocked)
    assert problem.decode(data, "kernel.py.lock.json") == frozen


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"not json", b'{"lock_version": 99}'])
def test_a_damaged_lock_is_refused(damage):
    with refused(Status.PROBLEM_CHANGED):
        problem.decode(damage, "kernel.py.lock.json")


def test_an_edited_lock_is_refused(frozen):
    data = problem.encode(frozen).replace(b'"flops": ', b'"flops":  ')
    with refused(Status.PROBLEM_CHANGED, "edited"):
        problem.decode(data, "kernel.py.lock.json")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
def test_a_lock_that_is_no_regular_file_is_not_read(tmp_path, make):
    lock = tmp_path / "kernel.py.lock.json"
    make(lock)
    with refused(Status.PROBLEM_CHANGED, r"kernel\.py\.lock\.json cannot be read"):
        problem.read(lock)


OUTPUTS = (ArraySpec(shape=(64, 8), dtype="float32"), ArraySpec(shape=(2, 64), dtype="float32"))


@pytest.mark.parametrize("rows", [None, problem.Rows(block=16, axes=(0, 1)), problem.Rows(block=64, axes=(0, 1))])
def test_rows_survive_the_lock(frozen, rows):
    changed = dataclasses.replace(frozen, outputs=OUTPUTS, rows=rows)
    data = problem.encode(changed)
    assert (b'"rows"' in data) is bool(rows)
    assert problem.decode(data, "a lock") == changed


@pytest.mark.parametrize(
    "entry",
    [
        [], "rows", {}, {"block": 16}, {"axes": [0, 1]}, {"block": 16, "axes": [0]}, {"block": 16, "axes": [0, 2]},
        {"block": 16, "axes": [0, -1]}, {"block": 16, "axes": [0, True]}, {"block": 16, "axes": [0, 0]},
        {"block": 0, "axes": [0, 1]}, {"block": -16, "axes": [0, 1]}, {"block": 24, "axes": [0, 1]},
        {"block": 128, "axes": [0, 1]}, {"block": 16.0, "axes": [0, 1]}, {"block": True, "axes": [0, 1]},
        {"block": 16, "axes": {"0": 1}}, {"block": 16, "axes": None},
    ],
)  # fmt: skip
def test_rows_that_do_not_make_up_an_axis_are_refused(entry):
    with pytest.raises(ValueError, match="wanted blocks of them"):
        problem.rows_of(entry, OUTPUTS)
