"""What the values child answers: the Mosaic module of each candidate is executed and compared. One child for all."""

import dataclasses
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ratchet.exam.judge.comparison import Comparer
from ratchet.exam.judge.correctness import Examiner
from ratchet.exam.judge.secret import SECRET_BYTES, secret_of
from ratchet.exam.judge.values_worker import Values
from ratchet.exam.problem import instances
from ratchet.exam.problem.floor import useful_flops
from ratchet.exam.problem.inputs import Instance
from ratchet.exam.problem.problem import encode
from ratchet.exam.problem.reference import Reference
from ratchet.process.sandbox.child import Limits
from ratchet.values import ArraySpec
from ratchet.values.status import Refusal, Status
from tests.exam.judge.programs import examined
from tests.kernels import ATTENTION, LAYERNORM, edited
from tests.kernels import HONEST as KERNELS
from tests.refusals import refused
from tests.tiers import cases

ROWS = KERNELS["rows_attention"]
BASES = {"attention": ATTENTION, "layernorm": LAYERNORM, "rows": ROWS}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("values")


@pytest.fixture(scope="module")
def problems():
    return {name: examined(source)[1] for name, source in BASES.items()}


@pytest.fixture
def exam(workers, root):
    return Examiner(workers=workers, root=root)


@pytest.fixture
def refusal(exam, problems):
    """Edits an honest kernel and returns why the result is rejected."""

    def check(base, *edits):
        with pytest.raises(Refusal) as caught:
            exam.check(problems[base], examined(edited(BASES[base], *edits))[0])
        assert "\n" not in caught.value.message
        return caught.value

    return check


MASK = "columns <= rows, scores, -jnp.inf)\n\n"
SCALE = (" * (HEAD_DIM**-0.5)\n        rows", "\n        rows")
FINISH = "o_ref[...] = (acc_ref[...] / l_ref[...]).astype(o_ref.dtype)"
LAST = "@pl.when(j == pl.num_programs(1) - 1)"
NORM = "* jax.lax.rsqrt(variance + 1e-6)\n\n\ndef kernel_fn"
NAN_ROW = """
        @pl.when(i == 3)
        def _():
            o_ref[5:6] = jnp.full((1, HEAD_DIM), jnp.nan, o_ref.dtype)"""
REFERENCE_NORM = "    return centred * jax.lax.rsqrt(variance + 1e-6)\n\n\ndef generate"
HONEST = {
    "as it is": ("attention", []),
    "large blocks": ("attention", [("BQ = 128", "BQ = 512"), ("BKV = 256", "BKV = 512")]),
    "mask by a large negative number": (
        "attention",
        [(MASK, "columns <= rows, scores, -1e30)\n\n")],
    ),
    "exp2 and the scale folded into q": (
        "attention",
        [
            (
                "            q_ref[...], k_ref",
                "            (q_ref[...] * (HEAD_DIM**-0.5 * 1.4426950408889634)).astype(jnp.bfloat16), k_ref",
            ),
            SCALE,
            ("jnp.exp(scores - m_new)", "jnp.exp2(scores - m_new)"),
            ("jnp.exp(m_ref[...] - m_new)", "jnp.exp2(m_ref[...] - m_new)"),
        ],
    ),
    "an approximate reciprocal for bfloat16": (
        "attention",
        [("acc_ref[...] / l_ref[...]", "acc_ref[...] * pl.reciprocal(l_ref[...], approx=True)")],
    ),
    "float32 weights": ("attention", [("p.astype(v_ref.dtype), v_ref[...]", "p, v_ref[...].astype(jnp.float32)")]),
    "layernorm": ("layernorm", []),
    "layernorm in one pass": (
        "layernorm",
        [
            (
                "variance = jnp.mean(centred * centred, axis=1, keepdims=True)\n    o_ref",
                "mean = jnp.mean(x, axis=1, keepdims=True)\n    "
                "variance = jnp.mean(x * x, axis=1, keepdims=True) - mean * mean\n    o_ref",
            )
        ],
    ),
}


@pytest.mark.parametrize("name", cases(("as it is", "large blocks", "float32 weights", "layernorm"), HONEST))
def test_honest_variants_pass(exam, problems, name):
    base, edits = HONEST[name]
    parity = exam.check(problems[base], examined(edited(BASES[base], *edits))[0])
    assert parity.worst_error <= 1
    assert len(parity.checks) == len(instances.kinds_of(problems[base]))
    assert parity.rms_error < 2 * parity.floor_rms_error + 1e-7


def test_another_order_of_parallel_steps_is_the_same(exam, problems):
    parity = exam.check(problems["attention"], examined(ATTENTION)[0], deep=True)
    assert "another order" in parity.checks[-1]


WRONG = {
    "zeros": ("attention", [(FINISH, "o_ref[...] = jnp.zeros_like(o_ref)")], "WRONG_VALUES INSENSITIVE"),
    "the mask is one off": ("attention", [(MASK, "columns < rows + 2, scores, -jnp.inf)\n\n")], "WRONG_VALUES"),
    "no rescaling": (
        "attention",
        [("rescale = jnp.exp(m_ref[...] - m_new)", "rescale = 1.0")],
        "WRONG_VALUES NOT_FINITE",
    ),
    "NaN in one row": (
        "attention",
        [(FINISH, FINISH + NAN_ROW)],
        "NOT_FINITE",
    ),
    "large values ignored": (
        "attention",
        [
            (
                "p.astype(v_ref.dtype), v_ref[...],",
                "p.astype(v_ref.dtype), jnp.where(jnp.abs(v_ref[...].astype(jnp.float32)) > 8, 0, v_ref[...]),",
            )
        ],
        "INSENSITIVE WRONG_VALUES",
    ),
    "an output in bfloat16 steps for float32": (
        "layernorm",
        [
            (
                NORM,
                "* jax.lax.rsqrt(variance + 1e-6).astype(jnp.bfloat16).astype(jnp.float32)\n\n\ndef kernel_fn",
            )
        ],
        "WRONG_VALUES",
    ),
    "uninitialised accumulator": (
        "attention",
        [("        acc_ref[...] = jnp.zeros_like(acc_ref)\n", "")],
        "MEMORY_HAZARD",
    ),
    "an output block never written": (
        "attention",
        [(LAST, "@pl.when((j == pl.num_programs(1) - 1) & (i != 2))")],
        "MEMORY_HAZARD",
    ),
}
"""Many more are judged whole: ``tests/candidates``."""


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_rejected(refusal, name):
    base, edits, wanted = WRONG[name]
    found = refusal(base, *edits)
    assert found.status.name in wanted.split(), found.message


def test_the_message_says_where_and_how_far_off(refusal):
    message = refusal("attention", (FINISH, FINISH.replace("/ l_ref", "* 1.25 / l_ref"))).message
    assert "random inputs" in message
    assert "one element is off" in message
    assert "its precision costs" in message
    assert "wanted" in message


def test_a_finding_names_the_place_in_the_kernel_file(refusal):
    found = refusal("attention", ("lambda i, j: (j, 0)),\n        ],", "lambda i, j: (j + 1, 0)),\n        ],"))
    message = found.message
    assert found.status is Status.OUT_OF_BOUNDS
    assert "window_out_of_bounds" in message
    assert re.search(r"in grid step \(0, 3\) at kernel.py:\d+:\d+\]", message)


def test_a_kernel_that_draws_bits_is_not_verified_even_where_they_decide_nothing(refusal):
    drawn = f"pltpu.prng_seed(0)\n        bits = pltpu.prng_random_bits(o_ref.shape)\n        {FINISH}"
    found = refusal("attention", (FINISH, f"{drawn} + jnp.where(bits == bits, 0, 1).astype(o_ref.dtype)"))
    assert found.status is Status.CANNOT_VERIFY
    assert "the core draws bits that no reference knows; wanted bits as an operand" in found.message


def test_evidence_says_what_was_executed_and_found(exam, problems, tmp_path, monkeypatch):
    monkeypatch.setattr(exam, "evidence", tmp_path / "evidence")
    uninitialised = ("        l_ref[...] = jnp.zeros_like(l_ref)\n", "")
    parity = exam.check(problems["attention"], examined(ATTENTION)[0])
    passed = json.loads((tmp_path / "evidence" / "verification.json").read_text())
    with pytest.raises(Refusal):
        exam.check(problems["attention"], examined(edited(ATTENTION, uninitialised))[0])
    failed = json.loads((tmp_path / "evidence" / "verification.json").read_text())
    assert passed["mosaic_module_version"] == failed["mosaic_module_version"] == parity.module_version > 0
    assert "libtpu" in passed["compiler"]
    assert "tpu.matmul" in passed["operations"]
    assert [check["status"] for check in passed["checks"].values()] == ["PASS"] * len(
        instances.kinds_of(problems["attention"])
    )
    assert failed["checks"]["random"]["status"] == "MEMORY_HAZARD"
    assert passed["program_sha256"] != failed["program_sha256"]


def test_carrying_a_value_across_parallel_steps_is_found(refusal):
    """Right in one order of the steps only; the plain checks cannot see it."""
    edits = [
        (
            "@pl.when(j == 0)",
            "@pl.when((j == 0) & (i == 0))\n    def _first():\n        m_ref[...] = jnp.zeros_like(m_ref)\n\n    "
            "@pl.when(j == 0)",
        ),
        (
            "        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)\n",
            "        m_ref[...] = jnp.full_like(m_ref, -jnp.inf) + 0 * m_ref[...]\n",
        ),
    ]
    found = refusal("attention", *edits)
    assert found.status is Status.MEMORY_HAZARD
    assert "order_of_parallel_steps" in found.message
    assert re.search(r"\[vector.load in grid step \(1, 0\) at kernel.py:\d+:\d+\]", found.message)


# --- problems -----------------------------------------------------------------------------------

WEAK = {
    "zeros": (
        "layernorm",
        [
            (
                REFERENCE_NORM,
                "    return centred * jax.lax.rsqrt(variance + 1e-6) * 0\n\n\ndef generate",
            )
        ],
        "zeros would pass",
    ),
    "ones": (
        "rows",
        [("return tuple(jax.random.normal(part", "return tuple(1 + 0 * jax.random.normal(part")],
        "ones would pass",
    ),
    "a constant": (
        "rows",
        [("return tuple(jax.random.normal(part", "return tuple(3 + 0 * jax.random.normal(part")],
        "mean would pass",
    ),
    "a copy": (
        "layernorm",
        [
            (REFERENCE_NORM, "    return x\n\n\ndef generate"),
            ("return 5 * ROWS * WIDTH", "return 1"),
        ],
        "copy of input 0 would pass",
    ),
}


@pytest.mark.parametrize("name", cases(("zeros", "a copy"), WEAK))
def test_a_weak_problem_is_refused(exam, name):
    base, edits, said = WEAK[name]
    problem = examined(edited(BASES[base], *edits))[1]
    with refused(Status.WEAK_PROBLEM, said):
        exam.check_problem(problem)


def test_honest_problems_can_be_frozen(exam, problems):
    for problem in problems.values():
        exam.check_problem(problem)


def test_a_claim_above_what_the_reference_computes_is_counted(exam, problems):
    for problem in problems.values():
        assert useful_flops(problem.flops, exam.counted_flops(problem)) == (problem.flops, "")
    rows = problems["rows"]
    multiplied = sum(rows.work["products"].values())
    useful, note = useful_flops(8 * multiplied, exam.counted_flops(dataclasses.replace(rows, flops=8 * multiplied)))
    assert multiplied <= useful < 1.2 * multiplied
    assert "claims" in note


ROUNDING = 1e-6


def with_draws(**numbers):
    """Values whose inputs are one number for each draw, and so is the reference."""

    def drawn(kind):
        return [np.full((8, 128), numbers[kind])]

    exact = np.full((1, 1), numbers["random"])
    inputs = SimpleNamespace(
        of=lambda instance: drawn(instance.kind.replace("-", "_")),
        public=lambda _: drawn("public"),
        programs=SimpleNamespace(exact=lambda _, arrays, __: [arrays[0][:1, :1], np.zeros((1, 1))]),
    )
    reference = Reference(exact=[exact], losses=[exact * ROUNDING], counts=[])
    comparer = Comparer(inputs)
    comparer.references = SimpleNamespace(of=lambda _: reference)
    return comparer


@pytest.mark.parametrize(
    ("public", "other", "status"),
    [
        (12.0, 9.0, Status.PASS),
        (10.0, 9.0, Status.PASS),  # near by chance: so no secret makes an honest problem a weak one
        (12.0, 10.0, Status.PASS),
        (10.0, 10.0, Status.WEAK_PROBLEM),
    ],
)
def test_a_number_is_weak_where_it_is_the_same_in_every_draw(monkeypatch, public, other, status):
    comparer = with_draws(random=10.0, public=public, fresh_mean=other)
    monkeypatch.setattr(comparer, "_check_other_secrets", lambda *_: None)
    problem = SimpleNamespace(outputs=(ArraySpec(shape=(1, 1), dtype="float32"),), output_splits=(), rows=None)
    answer = comparer.problem(Instance(problem=problem, kind="random", secret=b"", cache=Path()))
    assert answer["status"] == status.name
    assert ("the reference's mean would pass" in answer["message"]) == (status is Status.WEAK_PROBLEM)


# --- the child and its cache --------------------------------------------------------------------


def test_references_are_computed_once_and_the_secret_decides_them(exam, problems, root):
    exam.prepare(problems["rows"])
    (folder,) = (root / ".ratchet" / "references").glob(f"{problems['rows'].short}*")
    kept = {
        f"{name}{suffix}"
        for name in (*instances.kinds_of(problems["rows"]), "tables", "drawn")
        for suffix in (".npy", ".mac")
    }
    assert {path.name for path in folder.iterdir()} == kept
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    exam.prepare(problems["rows"])
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert (root / ".ratchet" / "secret").stat().st_mode & 0o077 == 0
    assert (root / ".ratchet" / ".gitignore").read_text() == "*\n"


DAMAGE = ("secret lost", "secret cut off", "references cut off", "references empty")


@pytest.mark.parametrize("damage", cases(DAMAGE[::2], DAMAGE))
def test_a_damaged_private_folder_is_made_anew(workers, tmp_path, problems, damage):
    """References of another secret's inputs, or half of them, would fail a kernel that is correct."""
    mine = tmp_path / ".ratchet"
    own = Examiner(workers=workers, root=tmp_path)
    artefact = examined(LAYERNORM)[0]
    own.check(problems["layernorm"], artefact)
    before = secret_of(tmp_path)
    if damage == "secret lost":
        (mine / "secret").unlink()
    elif damage == "secret cut off":
        (mine / "secret").write_bytes(b"")
    for file in (mine / "references").rglob("*.npy"):
        if "references" in damage:
            file.write_bytes(file.read_bytes()[: 1000 if "cut off" in damage else 0])
    assert own.check(problems["layernorm"], artefact).worst_error <= 1
    assert len(secret_of(tmp_path)) == SECRET_BYTES
    assert (secret_of(tmp_path) == before) == ("references" in damage)


def test_all_that_ask_at_once_have_the_same_secret(tmp_path):
    """A step that asks for values does so beside the step that looks for an earlier verdict."""
    for number in range(5):
        root, ready = tmp_path / str(number), threading.Barrier(4)
        root.mkdir()
        with ThreadPoolExecutor(4) as pool:
            found = [pool.submit(lambda: (ready.wait(), secret_of(root))[1]) for _ in range(4)]  # noqa: B023
        assert len({one.result() for one in found}) == 1


def test_no_space_for_the_references_is_not_the_kernels_fault(workers, small_disk, problems):
    own = Examiner(workers=workers, root=small_disk)
    with refused(Status.NO_SPACE, "No space left"):
        own.check(problems["layernorm"], examined(LAYERNORM)[0])
    assert list((small_disk / ".ratchet").rglob("*.npy")) == [], "nothing half-written stays"


def test_another_clone_asks_other_values(exam, workers, tmp_path, problems):
    other = Examiner(workers=workers, root=tmp_path)
    assert secret_of(tmp_path) != secret_of(exam.root)
    first, second = (e.check(problems["rows"], examined(ROWS)[0]) for e in (exam, other))
    assert first.rms_error != second.rms_error


def test_a_child_that_ends_is_a_verdict_and_the_next_request_works(workers, root, problems):
    for limits, said in (
        (Limits(seconds=0.01, memory_bytes=20 << 30), "did not finish in 0 s"),
        (Limits(seconds=60, memory_bytes=1), "used more than"),
    ):
        hasty = Examiner(workers=workers, root=root, limits=limits)
        workers.values.close()  # its successor has to import JAX first, which no limit here allows
        with refused(Status.CANNOT_VERIFY, said):
            hasty.check_problem(problems["rows"])
    Examiner(workers=workers, root=root).check_problem(problems["rows"])


def test_a_damaged_program_cannot_be_verified(exam, problems):
    artefact = dataclasses.replace(examined(ROWS)[0], program=b"\0" * 1000)
    with refused(Status.CANNOT_VERIFY):
        exam.check(problems["rows"], artefact)
    assert encode(problems["rows"])


def test_what_is_executed_meanwhile_answers_the_same(problems, tmp_path):
    problem, program = problems["rows"], examined(ROWS)[0].program
    kinds = instances.kinds_of(problem)
    random = Instance(problem=problem, kind="random", secret=b"secret", cache=tmp_path)

    def answers(then):
        values = Values()
        for number, kind in enumerate(kinds):
            following = [random.of_kind(other) for other in then[number + 1 :]]
            yield values.check(random.of_kind(kind), program=program, then=following)

    assert list(answers(kinds)) == list(answers(()))
