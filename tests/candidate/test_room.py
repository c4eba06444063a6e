"""Kernel files in their jailed child: whatever they do, the judge gets an artefact or a refusal."""

import pytest

from ratchet.candidate import problem, room
from ratchet.child import Limits
from ratchet.values.status import Refusal, Status
from tests.kernels import ATTENTION, edited

LIMITS = Limits(seconds=60, memory_bytes=4 << 30)
SHORT = Limits(seconds=12, memory_bytes=4 << 30)
OS = "import dataclasses\nos = dataclasses.sys.modules['os']\n"
"""How a kernel file that means harm gets past the static check, which is no wall."""
TOP = 'KERNEL_NAME = "causal_flash_attention"'


def refusal(tmp_path, source, limits=LIMITS):
    with pytest.raises(Refusal) as caught:
        room.examine(source.encode(), "kernel.py", child=room.start(tmp_path / "work"), limits=limits)
    assert "\n" not in caught.value.message
    return caught.value


def test_an_honest_kernel_becomes_bytes(tmp_path):
    artefact, frozen = room.examine(ATTENTION.encode(), "kernel.py", child=room.start(tmp_path / "work"), freeze=True)
    assert str(artefact.inputs[0]) == "bfloat16[1024,128]"
    assert len(artefact.program) > 1000
    assert artefact.jail == "", "the file-system jail has to hold where the tests run"
    assert frozen is not None
    assert problem.decode(problem.encode(frozen), "kernel.py.lock.json") == frozen
    problem.check_unchanged(artefact, frozen, frozen.jax_version)
    assert frozen.compulsory_bytes == 4 * 1024 * 128 * 2


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ("1 / 0", Status.IMPORT_FAILED, "ZeroDivisionError"),
        ("raise SystemExit(0)", Status.IMPORT_FAILED, "SystemExit"),
        (OS + "os._exit(0)", Status.IMPORT_FAILED, "exited with code 0"),
        ("print('RESULT: score=99 latency=0.1ms')\nraise KeyboardInterrupt", Status.IMPORT_FAILED, "KeyboardInterrupt"),
        ("import numpy as np\nnp.ones(10**11)", Status.OUT_OF_MEMORY, "Unable to allocate"),
        (OS + "dataclasses.sys.modules['jax'].config.update('x', 1)", Status.IMPORT_FAILED, "at import"),
        (OS + "os.kill(os.getppid(), 9)", Status.IMPORT_FAILED, "PermissionError"),
        (OS + "os.open(os.environ['PYTHONPATH'] + '/forged', os.O_CREAT | os.O_WRONLY)", None, "Permission"),
    ],
    ids=["raise", "SystemExit", "os._exit", "fake-result", "allocation", "config", "kill-judge", "write-outside"],
)
def test_what_happens_at_import(tmp_path, change, status, said):
    found = refusal(tmp_path, edited(ATTENTION, (TOP, f"{change}\n{TOP}")))
    assert found.status is (status or Status.IMPORT_FAILED)
    assert said in found.message


def test_an_endless_loop_ends_at_the_deadline(tmp_path):
    found = refusal(tmp_path, edited(ATTENTION, (TOP, f"while True:\n    pass\n{TOP}")), SHORT)
    assert found.status is Status.TIMEOUT
    assert "12 s" in found.message


def test_a_fork_that_outlives_its_parent_is_killed(tmp_path):
    change = OS + "if os.fork():\n    os._exit(0)\nwhile True:\n    pass"
    found = refusal(tmp_path, edited(ATTENTION, (TOP, f"{change}\n{TOP}")), SHORT)
    assert found.status is Status.IMPORT_FAILED


@pytest.mark.parametrize(
    ("edits", "status", "said"),
    [
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
    ],
    ids=["unaligned", "primitive", "shape", "flops", "inputs", "random", "meta"],
)
def test_what_happens_while_tracing(tmp_path, edits, status, said):
    found = refusal(tmp_path, edited(ATTENTION, *edits))
    if status is not None:
        assert found.status is status
    assert found.status.exit_code < 40
    assert said in found.message


def test_an_unsupported_primitive_has_its_own_status(tmp_path):
    source = edited(ATTENTION, ("p = jnp.exp(scores - m_new)", "p = jax.lax.erf_inv(jnp.sort(scores - m_new, axis=1))"))
    assert refusal(tmp_path, source).status is Status.UNSUPPORTED_PRIMITIVE


def test_two_traces_that_differ_are_non_deterministic(tmp_path):
    source = edited(ATTENTION, ("(HEAD_DIM**-0.5)", "float(np.random.rand())"), (TOP, f"import numpy as np\n{TOP}"))
    assert refusal(tmp_path, source).status in (Status.NON_DETERMINISTIC, Status.PROBLEM_CHANGED)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    return room.examine(
        ATTENTION.encode(), "kernel.py", child=room.start(tmp_path_factory.mktemp("frozen") / "work"), freeze=True
    )[1]


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
def test_a_changed_problem_is_refused_by_name(tmp_path, frozen, edits, named):
    artefact, _ = room.examine(edited(ATTENTION, *edits).encode(), "kernel.py", child=room.start(tmp_path / "work"))
    with pytest.raises(Refusal, match="--new-problem") as caught:
        problem.check_unchanged(artefact, frozen, frozen.jax_version)
    assert caught.value.status is Status.PROBLEM_CHANGED
    assert named in caught.value.message


def test_a_wrong_output_dtype_is_refused(tmp_path, frozen):
    source = edited(
        ATTENTION,
        ("jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype)", "jax.ShapeDtypeStruct((SEQ, HEAD_DIM), jnp.float32)"),
    )
    artefact, _ = room.examine(source.encode(), "kernel.py", child=room.start(tmp_path / "work"))
    with pytest.raises(Refusal, match=r"float32\[1024,128\]") as caught:
        problem.check_outputs(artefact, frozen)
    assert caught.value.status is Status.WRONG_SHAPE


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"not json", b'{"lock_version": 99}'])
def test_a_damaged_lock_is_refused(damage):
    with pytest.raises(Refusal) as caught:
        problem.decode(damage, "kernel.py.lock.json")
    assert caught.value.status is Status.PROBLEM_CHANGED


def test_an_edited_lock_is_refused(frozen):
    data = problem.encode(frozen).replace(b'"flops": ', b'"flops":  ')
    with pytest.raises(Refusal, match="edited"):
        problem.decode(data, "kernel.py.lock.json")
