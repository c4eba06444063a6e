"""Blocks for the shapes of a program: captured, modelled, ranked, and written in the forms that others read."""

import ast
import json
import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import pytest

import ratchet
from ratchet.commands.cli import main
from ratchet.exam.candidate import arrays
from ratchet.exam.candidate.target import Target
from ratchet.exam.measure import devices
from ratchet.tune import shortlist as measuring
from ratchet.tune.captured import cases
from ratchet.tune.fit import modelled, ranked, shortlist
from ratchet.tune.tables import python_module, tokamax, tpu_inference
from ratchet.values import ArraySpec, Band
from ratchet.values.points import Trial, Tuned
from ratchet.values.program import Vmem
from ratchet.values.status import Refusal, Status
from tests.refusals import refused

LIMIT = 1 << 20
TARGET = Target(module="kernels_of_mine", attribute="scaled", source=None)


@pytest.fixture
def mine(monkeypatch):
    """A module that is imported, and another that has its function by name."""

    def scaled(x, *more, scale=1.0, mask=None):
        return x * scale + sum(more)

    first, second = ModuleType("kernels_of_mine"), ModuleType("a_model")
    first.scaled = second.scaled = scaled
    for module in (first, second):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return second


def test_calls_are_captured_with_shapes_dtypes_and_plain_arguments(mine, tmp_path):
    path, before = tmp_path / "captured.json", mine.scaled

    @jax.jit
    def model(x):
        return mine.scaled(x) + mine.scaled(x, x, scale=2.0)

    for _ in range(2):
        with ratchet.capture("kernels_of_mine:scaled", to=path):
            model(jnp.zeros((8, 128), jnp.bfloat16))  # traced once
            mine.scaled(jnp.zeros((4,), jnp.int8), scale=True)
    assert mine.scaled is before
    calls = cases(path, TARGET)
    assert [(call.inputs, dict(call.options), call.others["calls"]) for call in calls] == [
        ((ArraySpec(shape=(4,), dtype="int8"),), {"scale": True}, 2),
        ((ArraySpec(shape=(8, 128), dtype="bfloat16"),), {}, 1),
        ((ArraySpec(shape=(8, 128), dtype="bfloat16"),) * 2, {"scale": 2.0}, 1),
    ]
    assert calls[2].others["arguments"] == ("x", "more0")


def test_a_call_that_cannot_be_made_again_says_why(mine, tmp_path):
    path = tmp_path / "captured.json"
    with ratchet.capture("kernels_of_mine:scaled", to=path):
        mine.scaled(jnp.zeros((8,)), mask=object())
    with pytest.raises(Refusal, match="mask is neither an array nor a number"):
        cases(path, TARGET)


def test_a_call_that_fails_is_captured_as_without_a_tpu(tmp_path, monkeypatch):
    module = ModuleType("kernels_of_mine")

    def scaled(x):
        raise RuntimeError("there is no TPU")

    module.scaled = scaled
    monkeypatch.setitem(sys.modules, "kernels_of_mine", module)
    path = tmp_path / "captured.json"
    with pytest.raises(RuntimeError, match="no TPU"), ratchet.capture("kernels_of_mine:scaled", to=path):
        module.scaled(jnp.zeros((8, 128)))
    (call,) = cases(path, TARGET)
    assert (call.inputs, call.others["calls"]) == ((ArraySpec(shape=(8, 128), dtype="float32"),), 1)


@pytest.mark.parametrize("name", ["", "none/captured.json", "a file/captured.json"])
def test_where_no_calls_can_be_written_is_said_before_the_program_runs(mine, tmp_path, name):
    (tmp_path / "a file").touch()
    with (
        refused(Status.USAGE, "wanted a file to write calls to"),
        ratchet.capture("kernels_of_mine:scaled", to=tmp_path / name),
    ):
        pytest.fail("it runs")


def test_what_is_no_call_is_not_captured_and_the_function_is_put_back(mine, tmp_path):
    path, before = tmp_path / "captured.json", mine.scaled
    with pytest.raises(TypeError), ratchet.capture("kernels_of_mine:scaled", to=path):
        mine.scaled()
    assert mine.scaled is before
    with pytest.raises(Refusal, match="no call of kernels_of_mine:scaled"):
        cases(path, TARGET)


@pytest.mark.parametrize("name", ["kernels_of_mine", "kernels_of_mine:absent", "not_imported:f"])
def test_what_is_no_function_is_not_captured(mine, tmp_path, name):
    with pytest.raises(Refusal, match="is no function"), ratchet.capture(name, to=tmp_path / "c.json"):
        pass


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 1, "calls": [{"function": 3, "calls": 1}]}'])
def test_another_file_holds_no_calls(tmp_path, text):
    path = tmp_path / "captured.json"
    path.write_text(text)
    with pytest.raises(Refusal, match="no file of captured calls"):
        cases(path, TARGET)


def modeller(count):
    """Models points in no time: a kernel that needs ``rows`` KiB, and is fastest at 512 of them."""

    def tried(point):
        count.append(point)
        rows = point["rows"]
        used = rows << 10
        vmem = Vmem(op="k", is_kernel=True, allocations=(), used_bytes=used, limit_bytes=LIMIT, chip_bytes=LIMIT)
        if used > LIMIT:
            return Trial(point=point, status=Status.VMEM_OVERFLOW, compiled=True, vmem=vmem)
        if rows == 256:
            return Trial(point=point, status=Status.SCHEDULE_UNKNOWN, reason="vfoo", compiled=True, vmem=vmem)
        return trial(1 + abs(rows - 512) / 1024, rows=rows)

    return tried


def trial(latency_ms, **point):
    band = Band(bound_by="compute", low_ms=latency_ms * 0.9, high_ms=latency_ms * 1.1)
    vmem = Vmem(op="k", is_kernel=True, allocations=(), used_bytes=1, limit_bytes=2, chip_bytes=LIMIT)
    return Trial(point=point, status=Status.PASS, compiled=True, latency_ms=latency_ms, band=band, vmem=vmem)


def tuned(**changes):
    inputs = (ArraySpec(shape=(8, 256), dtype="bfloat16"), ArraySpec(shape=(256, 512), dtype="int8"))
    best = trial(0.5, BM=8, BN=128)
    given = {"inputs": inputs, "arguments": ("x", "w"), "options": {"causal": True}, "chip": "v6e"}
    given |= {"compiler": "libtpu 1", "trials": (best,)}
    return Tuned(default=None, shortlist=(best,), **{**given, **changes})


def test_what_fits_is_modelled_and_most_overflows_are_not_compiled():
    count = []
    rows = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    trials = ranked(modelled([{"rows": one} for one in rows], "v5e", modeller(count)))
    assert [one.point["rows"] for one in trials if one.latency_ms is not None] == [512, 128, 64, 1024]
    assert {one.point["rows"] for one in trials if one.status is Status.VMEM_OVERFLOW} == {2048, 4096, 8192}
    assert [one.point["rows"] for one in trials if one.status is Status.SCHEDULE_UNKNOWN] == [256]
    assert len(count) == sum(one.compiled for one in trials) < len(rows)
    assert {point["rows"] for point in count} >= {64, 128, 256, 512, 1024}


def test_a_shortlist_has_the_best_and_what_is_like_it():
    trials = ranked([trial(latency, rows=latency) for latency in (9, 1, 2, 3, 4)])
    assert [one.latency_ms for one in shortlist(trials, lambda one, other: one.latency_ms == 9, least=2)] == [1, 2, 9]
    assert [one.latency_ms for one in shortlist(trials, lambda one, other: False, least=2)] == [1, 2]


def test_a_python_dictionary():
    made = ast.parse(python_module([tuned(), tuned(chip="v5e", trials=())]))
    key = ("v6e", "bfloat16[8,256]", "int8[256,512]", "causal=True")
    assert ast.literal_eval(made.body[1].value) == {key: {"BM": 8, "BN": 128}}


def test_tokamax_reads_arguments_and_configurations_as_json_text():
    ((folder, made),) = tokamax([tuned()]).items()
    assert folder == "tpu_v6_lite"
    ((key, times),) = made.items()
    assert json.loads(key) == {"x": "bf16[8,256]", "w": "i8[256,512]", "causal": True}
    ((config, data),) = times.items()
    assert json.loads(config) == {"BM": 8, "BN": 128}
    assert data["evaluation_times_ms"] == [0.5]
    assert data["metadata"]["modelled_by"] == "pallas-ratchet"
    with pytest.raises(Refusal, match="names arguments"):
        tokamax([tuned(arguments=())])


@pytest.mark.parametrize(
    ("key", "value", "made"),
    [
        ("$x.0,$w.1,$x.dtype", "[$BM, $BN]", {"8,512,bfloat16": [8, 128]}),
        ("$0.1/q_$1.dtype/tpu-$tpu", '{"config": {"bm": $BM}}', {"256": {"q_int8": {"tpu-6": {"config": {"bm": 8}}}}}),
    ],
)
def test_tpu_inference_reads_the_keys_that_a_template_makes(key, value, made):
    assert tpu_inference([tuned()], key, value) == {"tpu_v6e": made}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [("$y.0", "[$BM]", "names 'y.0', wanted some of"), ("$x.0 $", "1", "no template"), ("$x.0", "[$BM", "no JSON")],
)
def test_a_template_that_cannot_be_filled_is_refused(key, value, said):
    with pytest.raises(Refusal, match=said.replace(".", r"\.")):
        tpu_inference([tuned()], key, value)


def unjudged(*_, **__):
    pytest.fail("nothing is judged")


SOURCE = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

ROWS = 8


def double(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def doubled(x):
    window = pl.BlockSpec((ROWS, 512), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(double, out_shape=shape, grid=x.shape[0] // ROWS, in_specs=[window], out_specs=window)(x)


def rolled(x):
    return jnp.roll(x, ROWS)
"""


@pytest.mark.slow
def test_captured_calls_become_tables_and_a_shortlist(tmp_path, monkeypatch, capsys):
    (tmp_path / "rows.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "PCI", tmp_path / "nothing")
    call = {"function": "rows:doubled", "inputs": ["float32[16384,512]"], "arguments": ["x"], "options": {}, "calls": 7}
    (tmp_path / "captured.json").write_text(json.dumps({"format": 1, "calls": [call]}))
    given = ["tune", "rows.py:doubled", "--shapes", "captured.json", "--out", "out", "--on", "tpu"]
    templates = ["--tpu-inference-key", "$x.0,$x.dtype", "--tpu-inference-value", "[$ROWS]"]
    assert main([*given, *templates, "ROWS=512,16384"], unjudged) == 0
    said = capsys.readouterr().out
    assert "calls captured: 7" in said
    assert "modelled, not measured" in said
    assert "no TPU is attached here, so nothing was measured" in said
    document = json.loads((tmp_path / "out" / "tuned.json").read_text())["calls"][0]
    assert document["best"] == {"ROWS": 512}
    best, as_it_is = document["points"][0], document["as_it_is"]
    assert best["latency_ms"] < as_it_is["latency_ms"]
    assert document["points"][1]["status"] == "VMEM_OVERFLOW"
    assert json.loads((tmp_path / "out" / "tpu_inference" / "tpu_v5e.json").read_text()) == {"16384,float32": [512]}
    listed = json.loads((tmp_path / "out" / "shortlist.json").read_text())
    assert [point["point"] for point in listed["calls"][0]["points"]] == [{"ROWS": 512}]
    assert listed["calls"][0]["constants"] == ["ROWS"]
    assert listed["calls"][0]["points"][0]["near_best"] is True
    assert measuring.main(["out/shortlist.json"]) == Status.UNSUPPORTED_PLATFORM.exit_code
    assert "no TPU is attached: JAX runs on cpu here" in capsys.readouterr().err


def test_a_shortlist_is_measured_round_by_round(tmp_path, monkeypatch, capsys):
    (tmp_path / "rows_measured.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "SECONDS", 0.0)
    points = [{"point": {"ROWS": rows}, "latency_ms": 1.0} for rows in (8, 64)]
    call = {
        **{"chip": "v5e", "device_kind": "TPU v5 lite", "generator": "", "options": {}, "constants": ["ROWS"]},
        **{"inputs": [{"shape": [64, 128], "dtype": "float32"}], "points": points},
    }
    document = {"format": 1, "target": "rows_measured.py:rolled", "calls": [call]}
    (tmp_path / "shortlist.json").write_text(json.dumps(document))
    assert measuring.main(["shortlist.json", "--on", "cpu", "--json", "out.json"]) == 0
    (made,) = json.loads((tmp_path / "out.json").read_text())["calls"]
    assert {point["point"]["ROWS"] for point in made["points"]} == {8, 64}
    assert all(point["measured_ms"] > 0 for point in made["points"])
    assert made["rounds"] >= 30
    assert "ms measured" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--shapes", "c.json", "--input", "f32[8]"], "say the same twice"),
        (["--on", "tpu"], "say where with --out"),
        (["--tpu-inference-key", "$x.0"], "go together"),
        (["--input", "f32[64,128]", "--out", "rows.py"], "rows.py/tuned.py cannot be written"),
    ],
)
def test_options_that_do_not_go_together_are_refused_first(more, said, capsys, tmp_path, monkeypatch):
    (tmp_path / "rows.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "rows.py:doubled", "ROWS=1", *more], unjudged) == Status.USAGE.exit_code
    assert said in capsys.readouterr().err


def test_every_captured_dtype_is_one_that_a_case_takes():
    for dtype in ("bfloat16", "float8_e4m3fn", "int4", "uint8", "bool", "float32"):
        spec = jax.ShapeDtypeStruct((8, 128), dtype)
        assert arrays.array(f"{spec.dtype.name}[8,128]") == ArraySpec(shape=(8, 128), dtype=dtype)
