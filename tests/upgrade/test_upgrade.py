"""``ratchet upgrade-check``: the same targets under two versions of JAX, and what is a regression."""

import json
import signal
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest

from ratchet.commands import upgrade_check
from ratchet.commands.cli import main
from ratchet.process.boot import home
from ratchet.upgrade.upgrade import upgraded
from ratchet.values.change import Costs, Output, Side
from ratchet.values.status import Status
from ratchet.view.changes import upgrade_document, upgrade_text

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


def test_a_latency_that_grows_by_more_than_allowed_is_worse():
    assert [check(side(), side(ms)).worse for ms in (1.019, 1.03, 0.9)] == [False, True, False]
    assert not check(side(), side(1.03), allowed=0.1).worse


def test_what_no_longer_compiles_is_worse_and_says_why():
    made = check(side(), side(costs={"status": Status.VMEM_OVERFLOW, "latency_ms": None, "reason": "needs more"}))
    assert made.worse
    text = upgrade_text([made], versions=("1", "2"))
    assert "after: VMEM_OVERFLOW: needs more" in text
    assert "1 of 1 worse" in text


def test_the_operations_and_copies_that_changed_are_named_and_small_changes_are_not():
    before = side(op_ms={"kernel a": 0.5, "xla add": 0.3, "copy b": 0.2})
    after = side(1.1, op_ms={"kernel a": 0.5001, "xla add": 0.5, "copy c": 0.1}, copy_bytes={"relayout of x": 1 << 20})
    made = check(before, after)
    assert [(one.name, one.before, one.after) for one in made.ops] == [
        ("xla add", 0.3, 0.5),
        ("copy b", 0.2, 0),
        ("copy c", 0, 0.1),
    ]
    text = upgrade_text([made], versions=("1", "2"))
    assert "xla add: 0.3000 -> 0.5000 ms" in text
    assert "relayout of x: 0 B -> 1.00 MiB" in text


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
def test_values_may_differ_by_rounding_and_no_more_and_the_same_bits_are_identical(before, after, worse):
    same = check(side(outputs=[output(1.0, np.nan)]), side(outputs=[output(1.0, np.nan)]))
    assert (same.values.identical, same.worse) == (True, False)
    made = check(side(outputs=[before]), side(outputs=[after]))
    assert made.values.worse is worse
    assert made.values.compared
    assert not made.values.identical


def test_a_new_finding_is_worse_and_an_old_one_is_not():
    race = "a copy is read before it arrives"
    assert check(side(), side(findings=(race,))).worse
    assert not check(side(findings=(race,)), side(findings=(race,))).worse


def test_values_that_are_executed_on_one_side_alone_settle_nothing_and_are_nobodys_fault():
    lost = side(outputs=()), side(no_values="CANNOT_VERIFY: an operation", **{"costs": {}})
    without = [Side(**{**vars(one), "outputs": None}) for one in lost]
    for made in (check(lost[0], without[1]), check(without[1], lost[0])):
        assert (made.worse, made.unsettled, made.whose) == (False, True, "judge")
    assert not check(*without).unsettled
    assert check(*without).values.reason == "CANNOT_VERIFY: an operation"


@pytest.mark.parametrize(
    ("status", "worse", "whose"),
    [
        (Status.CANNOT_VERIFY, False, "judge"),
        (Status.SCHEDULE_UNKNOWN, False, "judge"),
        (Status.NOT_MODELLED, False, "judge"),
        (Status.VMEM_OVERFLOW, True, "compiler"),
        (Status.COMPILER_CRASHED, True, "compiler"),
        (Status.LOWERING_FAILED, True, "kernel"),
        (Status.IMPORT_FAILED, True, "kernel"),
    ],
)
def test_what_is_the_compilers_the_kernels_and_the_judges_is_told_apart(status, worse, whose):
    failed = side(costs={"status": status, "latency_ms": None, "reason": "why"})
    made = check(side(), failed)
    assert (made.worse, made.unsettled, made.whose) == (worse, not worse, whose)
    assert {"judge": "a limit of this judge", "compiler": "the compiler's", "kernel": "the kernel's"}[
        whose
    ] in upgrade_text([made], versions=("1", "2"))
    if not worse:
        assert check(failed, side()).unsettled, "nor is it a gain"
        assert not check(failed, failed).unsettled


def test_other_values_of_the_same_program_are_of_jaxs_lowering():
    assert check(side(outputs=[output(1.0)]), side(outputs=[output(2.0)])).whose == "jax"
    assert check(side(), side(1.5, op_ms={"kernel k": 1.5})).whose == "compiler"
    assert check(side(), side()).whose == ""


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


PROCESS = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
for number, asked in json.loads((folder / "request.json").read_text())["targets"]:
    act, costs = ENDS.get(number), {"status": "PASS", "latency_ms": 1.0, "compiler": "libtpu 1, jax 1"}
    record = {"target": asked["title"], "chip": asked["chip"], "jax_version": "1", "costs": costs, "finished": True}
    if act == "refuse":
        (folder / "failed.json").write_text('{"status": "NO_SPACE", "message": "the disk is full"}')
    elif act == "say":
        sys.exit("Traceback\\nImportError: no jax")
    elif act == "hang":
        time.sleep(60)
    elif act:
        (folder / f"side-{number}.json").write_text(json.dumps({**record, "finished": False}))
        os.kill(os.getpid(), act)
    (folder / f"side-{number}.json").write_text(json.dumps(record))
"""


@pytest.fixture
def checked(tmp_path, monkeypatch, capsys):
    """Runs the command on four targets whose process ends as ``ends`` says of the target's number."""
    (tmp_path / "k.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    start = subprocess.Popen

    def run(ends, *more):
        def popen(command, **known):
            return start([sys.executable, "-c", f"ENDS = {ends!r}\n{PROCESS}", command[-1]], **known)

        monkeypatch.setattr(upgrade_check.subprocess, "Popen", popen)
        names = ("doubled", "shifted", "generate", "double")
        given = [f"k.py:{name}" for name in names]
        code = main(["upgrade-check", "--jax", OWN, "--jax", OWN, *given, *more], unjudged)
        return code, capsys.readouterr()

    return run


def test_a_process_that_was_killed_settles_nothing_and_the_others_go_on(checked):
    code, said = checked({1: signal.SIGKILL.value, 3: signal.SIGTERM.value})
    assert code == Status.UNSETTLED.exit_code
    assert "none of 4 worse, 2 not settled" in said.out
    rows = [line.split() for line in said.out.splitlines() if line.startswith("k:")]
    assert [row[-1] for row in rows[:4]] == ["same", "settled", "same", "settled"]
    assert "k:shifted: its process was ended by signal 9" in said.err
    assert "values: its process was ended by signal 9" in said.out


def test_a_process_that_crashes_is_settled_and_a_target_that_takes_too_long_is_not(checked):
    code, said = checked({1: signal.SIGSEGV.value})
    assert code == 0, "what crashes in the old side, too, is no regression"
    assert "not settled" not in said.out
    code, said = checked({2: "hang"}, "--deadline", "1")
    assert code == Status.UNSETTLED.exit_code
    assert "UNSETTLED: nothing new in 1 s, see --deadline" in said.out
    assert "none of 4 worse, 1 not settled" in said.out


@pytest.mark.parametrize(
    ("act", "status", "message"),
    [("say", Status.INFRASTRUCTURE, f"under jax {OWN}: ImportError: no jax"), ("refuse", Status.NO_SPACE, "is full")],
)
def test_what_stops_all_is_said(checked, act, status, message):
    code, said = checked({2: act})
    assert code == status.exit_code
    assert message in said.err


@pytest.mark.parametrize("which", ["before", "after"])
def test_a_side_without_an_end_is_not_settled_and_a_regression_stays_one(which):
    ended = side(costs={"status": Status.UNSETTLED, "latency_ms": None, "reason": "killed"}, ended="killed")
    pair = (ended, side()) if which == "before" else (side(), ended)
    made = check(*pair)
    assert (made.unsettled, made.worse) == (True, False)
    assert check(side(), side(2.0, ended="killed")).worse


@pytest.mark.slow
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
    assert {path.name for path in tmp_path.iterdir()} == {"k.py"}
