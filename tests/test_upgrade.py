"""``ratchet upgrade-check``: the same targets under two versions of JAX, and what is a regression."""

import json
import subprocess

import jax
import ml_dtypes
import numpy as np
import pytest

from ratchet import home
from ratchet.cli import main
from ratchet.commands import upgrade_check
from ratchet.upgrade import upgraded
from ratchet.upgrade_plain import SIDE
from ratchet.values.change import Costs
from ratchet.values.status import Status
from ratchet.values.upgrade import Output, Side
from ratchet.view.upgrade import upgrade_document, upgrade_text

OWN = jax.__version__
SOURCE = """
import jax
from jax.experimental import pallas as pl


def double(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def doubled(x):
    return pl.pallas_call(double, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), name="doubled")(x)


def generate(key):
    return jax.random.normal(key, (8, 128)), jax.random.randint(key, (), 0, 100)


def shifted(x, by):
    return doubled(x) + by
"""


def output(*values, dtype="float32", shape=None):
    array = np.array(values, dtype)
    return Output(shape=shape or array.shape, dtype=array.dtype.name, data=array.tobytes())


def side(ms=1.0, outputs=(), **changes):
    costs = {"latency_ms": ms, "vmem_bytes": 1 << 20, "vmem_limit_bytes": 16 << 20, "compiler": "libtpu 1, jax 1"}
    costs |= {"status": Status.PASS} | changes.pop("costs", {})
    known = {"target": "k:f", "chip": "v5e", "jax_version": "1", "op_ms": {"kernel k": ms}, "outputs": tuple(outputs)}
    return Side(costs=Costs(**costs), **{**known, **changes})


def check(before, after, **more):
    return upgraded(before, after, allowed_share=more.get("allowed", 0.02))


@pytest.mark.parametrize(
    ("ms", "kind", "worse"), [(1.019, "same", False), (1.03, "slower", True), (0.9, "faster", False)]
)
def test_a_latency_that_grows_by_more_than_allowed_is_worse(ms, kind, worse):
    made = check(side(), side(ms))
    assert (made.change.kind.value, made.worse) == (kind, worse)
    assert not check(side(), side(ms), allowed=0.1).worse


def test_what_no_longer_compiles_is_worse_and_says_why():
    made = check(side(), side(costs={"status": Status.VMEM_OVERFLOW, "latency_ms": None, "reason": "needs more"}))
    assert made.worse
    text = upgrade_text([made], versions=("1", "2"))
    assert "after: VMEM_OVERFLOW: needs more" in text
    assert "1 of 1 worse" in text


def test_the_operations_that_changed_are_named_and_small_changes_are_not():
    before = side(op_ms={"kernel a": 0.5, "xla add": 0.3, "copy b": 0.2})
    after = side(1.1, op_ms={"kernel a": 0.5001, "xla add": 0.5, "copy c": 0.1})
    made = check(before, after)
    assert [(one.name, one.before, one.after) for one in made.ops] == [
        ("xla add", 0.3, 0.5),
        ("copy b", 0.2, 0),
        ("copy c", 0, 0.1),
    ]
    assert "xla add: 0.3000 -> 0.5000 ms" in upgrade_text([made], versions=("1", "2"))


def test_copies_that_came_are_named():
    made = check(side(), side(copy_bytes={"relayout of x": 1 << 20}))
    assert "relayout of x: 0 B -> 1.00 MiB" in upgrade_text([made], versions=("1", "2"))


def test_values_that_are_the_same_bits_are_identical():
    made = check(side(outputs=[output(1.0, np.nan)]), side(outputs=[output(1.0, np.nan)]))
    assert made.values.identical
    assert not made.worse


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        (output(1.0, 4.0), output(1.0, 4.0 + 2e-6), False),  # some units in the last place of 4
        (output(1.0, 4.0), output(1.0, 4.0 + 2e-4), True),
        (output(1.0, 0.0), output(1.0, 1e-7), False),
        (output(1.0, 2.0), output(1.0, np.inf), True),
        (output(1, 2, dtype="int32"), output(1, 3, dtype="int32"), True),
        (output(1.0, dtype=ml_dtypes.bfloat16), output(1.0625, dtype=ml_dtypes.bfloat16), False),
        (output(1.0, dtype=ml_dtypes.bfloat16), output(1.5, dtype=ml_dtypes.bfloat16), True),
        (output(1.0), output(1.0, dtype=ml_dtypes.bfloat16), True),
        (output(1.0, 2.0), output(1.0, 2.0, shape=(2, 1)), True),
    ],
)
def test_values_may_differ_by_rounding_and_no_more(before, after, worse):
    made = check(side(outputs=[before]), side(outputs=[after]))
    assert made.values.worse is worse
    assert made.values.compared
    assert not made.values.identical


def test_a_new_finding_is_worse_and_an_old_one_is_not():
    race = "a copy is read before it arrives"
    assert check(side(), side(findings=(race,))).worse
    assert not check(side(findings=(race,)), side(findings=(race,))).worse


def test_values_that_cannot_be_executed_any_more_are_worse_and_those_that_never_were_are_not():
    lost = side(outputs=()), side(no_values="CANNOT_VERIFY: an operation", **{"costs": {}})
    without = [Side(**{**vars(one), "outputs": None}) for one in lost]
    assert check(lost[0], without[1]).worse
    assert not check(*without).worse
    assert check(*without).values.reason == "CANNOT_VERIFY: an operation"


def test_the_document_is_json_without_the_outputs():
    document = json.loads(json.dumps(upgrade_document([check(side(), side(1.5, outputs=[output(1.0)]))])))
    (one,) = document["upgrades"]
    assert (one["kind"], one["worse"], one["before"]["jax"]) == ("slower", True, "1")
    assert one["ops_ms"] == [{"name": "kernel k", "before": 1.0, "after": 1.5}]


def unjudged(*_, **__):
    pytest.fail("nothing is judged")


@pytest.fixture
def private(tmp_path, monkeypatch):
    monkeypatch.setattr(home, "private_folder", lambda: tmp_path / "private")
    return tmp_path / "private"


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        (["--jax", OWN], Status.USAGE, "wanted the old version, and the new one"),
        (["--jax", OWN, "--jax", "9.9"], Status.NOT_FOUND, "setup --jax 9.9` makes it"),
        (["--jax", "../x", "--jax", OWN], Status.USAGE, "is no version of JAX"),
        (["--jax", OWN, "--jax", OWN, "--allowed", "2"], Status.USAGE, "wanted a share"),
    ],
)
def test_what_cannot_be_compared_is_refused(private, capsys, given, status, said):
    assert main(["upgrade-check", "k.py:f", *given], unjudged) == status.exit_code
    assert said in capsys.readouterr().err


def test_a_side_that_leaves_no_answer_is_said(private, tmp_path, monkeypatch, capsys):
    (tmp_path / "k.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)

    def run(command, **_):
        return subprocess.CompletedProcess(command, 1, stdout="", stderr="Traceback\nImportError: no jax\n")

    monkeypatch.setattr(upgrade_check.subprocess, "run", run)
    given = ["upgrade-check", "--jax", OWN, "--jax", OWN, "k.py:doubled", "--input", "f32[8,128]"]
    assert main(given, unjudged) == Status.INFRASTRUCTURE.exit_code
    assert f"under jax {OWN}: ImportError: no jax" in capsys.readouterr().err


def test_two_sides_in_processes_of_their_own(tmp_path, monkeypatch, capsys):
    """Both under the judge's own environment: nothing changes, values of generated inputs included."""
    (tmp_path / "k.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    given = ["upgrade-check", "--jax", OWN, "--jax", OWN, "k.py:shifted", "--input", "generate", "--json"]
    assert main(given, unjudged) == 0
    (one,) = json.loads(capsys.readouterr().out)["upgrades"]
    assert one["kind"] == "same"
    assert one["values"]["identical"]
    assert one["before"] == one["after"]
    assert one["before"]["jax"] == OWN
    assert one["before"]["latency_ms"] > 0
    assert one["ops_ms"] == []
    assert SIDE not in {path.name for path in tmp_path.iterdir()}
