"""The pytest plugin on a sample repository: what is wrong is caught, and what is near enough is let through."""

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.imports import HERE

pytest_plugins = ["pytester"]

KERNELS = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

ROUNDS = {rounds}

def body(x_ref, o_ref):
    y = x_ref[...]
    for _ in range(ROUNDS):
        y = jnp.exp(-y * y)
    o_ref[...] = y

def bell(x, rows=256, limit=None):
    window = pl.BlockSpec((rows, 128), lambda i: (i, 0))
    return pl.pallas_call(body, out_shape=x, grid=x.shape[0] // rows, in_specs=[window], out_specs=window,
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=limit))(x)

def reference(x):
    for _ in range(ROUNDS):
        x = jnp.exp(-x * x)
    return x
"""
LATENCY = """
import functools, numpy as np, pytest
from kernels import bell
X = np.linspace(-1, 1, 1024 * 128, dtype=np.float32).reshape(1024, 128)

@pytest.mark.tpu_kernel(chip="v5e")
def test_latency(ratchet_latency, ratchet_baseline, ratchet_fits):
    assert ratchet_fits(bell, X)
    assert ratchet_latency(bell, X) <= ratchet_baseline
"""
VALUES = """
import functools, numpy as np, pytest
from kernels import bell, reference
X = np.linspace(-1, 1, 512 * 128, dtype=np.float32).reshape(512, 128)

def test_right(ratchet_values, ratchet_chip):
    assert ratchet_chip == "v5e"
    (got,) = ratchet_values(bell, reference, X)
    assert got.shape == X.shape

def test_wrong(ratchet_values):
    ratchet_values(bell, lambda x: reference(x) * 1.001, X)

def test_wrong_by_its_own_tolerance(ratchet_values):
    ratchet_values(bell, lambda x: reference(x) * 1.001, X, rtol=0.01)
    ratchet_values(bell, lambda x: reference(x) * 1.1, X, rtol=0.01)

@pytest.mark.tpu_kernel(chip=("v5e", "v6e"))
def test_several_chips(ratchet_chip, ratchet_values):
    ratchet_values(bell, reference, X)

def test_shape(ratchet_values):
    ratchet_values(bell, lambda x: reference(x)[:8], X)

def test_raises(ratchet_latency):
    ratchet_latency(lambda x: x + X[:, :3], X)

def test_overflow(ratchet_fits):
    assert ratchet_fits(functools.partial(bell, limit=1 << 16), X)
"""


@pytest.fixture
def sample(pytester, monkeypatch):
    """A repository with a kernel; runs pytest in it, in a process of its own: JAX does not load twice in one."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # the kernel file changes within a second

    def run(*given, rounds=1, **files):
        pytester.makepyfile(kernels=KERNELS.format(rounds=rounds), **files)
        installed = any(point.name == "ratchet" for point in entry_points(group="pytest11"))
        plugin = () if installed else ("-p", "ratchet.testing.pytest_plugin")
        return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", *given)

    return run


FITS = """
import pytest
from ratchet.testing import pytest_plugin

@pytest.mark.parametrize("status", ["PASS", "NOT_MODELLED", "VMEM_OVERFLOW", "SMEM_OVERFLOW"])
def test_fits(ratchet_fits, monkeypatch, status):
    monkeypatch.setattr(pytest_plugin._State, "explain", lambda *_: {"status": status, "vmem": "what fills it"})
    assert bool(ratchet_fits(None)) is (status in ("PASS", "NOT_MODELLED"))
"""


def test_what_overflows_either_memory_does_not_fit(sample):
    sample(test_fits=FITS).assert_outcomes(passed=4)


DEAD = """
import subprocess, sys
from ratchet.testing import pytest_plugin
from ratchet.testing.judge import Judge

def started():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    return Judge(process=process, folder=None, stablehlo="")

def test_judge(request, monkeypatch):
    monkeypatch.setattr(Judge, "start", started)
    state = request.config.stash[pytest_plugin._STATE]
    first = state.judge()
    assert state.judge() is first
    first.process.communicate("end")
    second = state.judge()
    assert second is not first
    second.process.communicate("end")
"""


def test_a_process_that_died_is_started_again(sample):
    sample(test_dead=DEAD).assert_outcomes(passed=1)


COMPARED = """
from ratchet.testing.pytest_plugin import Latency

def test_latency(ratchet_baseline):
    given = {{"band_ms": (0, 9), "chip": "v5e", "compiler": "a", "vmem_bytes": 0, "spills": 0}}
    assert Latency(latency_ms={ms}, **given) <= ratchet_baseline
"""


@pytest.mark.slow
def test_a_slower_kernel_is_caught(sample, pytester):
    sample("--ratchet-update", test_latency=LATENCY).assert_outcomes(passed=1)
    (entry,) = json.loads((pytester.path / "ratchet-baseline.json").read_text()).values()
    assert entry["band_ms"][0] < entry["latency_ms"] < entry["band_ms"][1]
    assert (entry["chip"], entry["allowed_share"]) == ("v5e", 0.02)
    slower = sample(rounds=40)
    slower.assert_outcomes(failed=1)
    slower.stdout.fnmatch_lines(["*ms modelled for v5e*<=*baseline of*"])
    other = sample("--ratchet-jax", "0.0.1")
    other.assert_outcomes(failed=1)
    other.stdout.fnmatch_lines(["*NOT_FOUND: there is no environment with jax 0.0.1*"])


@pytest.mark.slow
def test_what_is_inside_the_band_is_let_through(sample, pytester):
    missing = sample(test_bands=COMPARED.format(ms=1.0))
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*has no baseline of test_bands.py::test_latency: run pytest --ratchet-update*"])
    sample("--ratchet-update").assert_outcomes(passed=1)
    near = sample(test_bands=COMPARED.format(ms=1.01))
    near.assert_outcomes(passed=1)
    near.stdout.fnmatch_lines(["*modelled latencies*", "*+1.00% over the baseline*"])
    sample(test_bands=COMPARED.format(ms=1.03)).assert_outcomes(failed=1)
    path = pytester.path / "ratchet-baseline.json"
    (entry,) = json.loads(path.read_text()).values()
    path.write_text(json.dumps({"test_bands.py::test_latency": {**entry, "allowed_share": 0.1}}))
    sample().assert_outcomes(passed=1)


@pytest.mark.slow
def test_values_are_those_of_the_compiled_program_and_overflows_are_shown(sample):
    result = sample(test_values=VALUES)
    result.assert_outcomes(passed=3, failed=5)
    line = 1 + VALUES.strip().splitlines().index("    ratchet_latency(lambda x: x + X[:, :3], X)")
    said = f"*LOWERING_FAILED: cannot export: TypeError*test_values.py:{line})"
    result.stdout.fnmatch_lines(
        ["*WRONG_VALUES*", "WRONG_SHAPE: the function gives*", said, "*input window 0: f32?256,128? of ?512,128?*"]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "ratchet-baseline.json is no JSON"),
        ('{"a": {"latency_ms": 0, "allowed_share": 0.02}}', "wanted an object with latency_ms above 0"),
    ],
)
def test_a_baseline_that_does_not_read_is_said(sample, pytester, text, said):
    (pytester.path / "ratchet-baseline.json").write_text(text)
    source = "def test_it(ratchet_baseline):\n    ratchet_baseline._state.entries()\n"
    result = sample(test_broken=source)
    assert said in "\n".join([*result.outlines, *result.errlines])


MARKED = """
import pytest

@pytest.mark.tpu_kernel("v6e")
def test_by_position(ratchet_chip):
    assert ratchet_chip == "v6e"

@pytest.mark.tpu_kernel
def test_none_named(ratchet_chip):
    assert ratchet_chip == "v5e"

@pytest.mark.tpu_kernel(("v5e", "v6e"))
def test_two(ratchet_chip):
    pass
"""


def test_a_marker_names_its_chips_by_position_too(sample):
    sample(test_marked=MARKED).assert_outcomes(passed=4)


@pytest.mark.parametrize("given", ['chips=("v5e",)', '"v9"', "chip=()", '"v5e", "v6e"'])
def test_a_marker_that_names_no_chip_is_refused(sample, given):
    source = f"import pytest\n@pytest.mark.tpu_kernel({given})\ndef test_it(ratchet_chip):\n    pass\n"
    result = sample(test_marked=source)
    assert result.ret != 0
    assert "wanted tpu_kernel(chip=...) with one or more of v5e" in "\n".join([*result.outlines, *result.errlines])


PYTEST = "pytest _pytest py.py pluggy iniconfig packaging pygments typing_extensions.py".split()
JAX = "jax jaxlib ml_dtypes numpy numpy.libs opt_einsum scipy scipy.libs".split()
"""What pip installs for them; flatbuffers, protobuf and libtpu are not among it."""


@pytest.fixture
def alone(pytester, tmp_path):
    """Runs pytest in a Python that has a few packages alone, and the plugin."""

    def run(packages, *given, **files):
        pytester.makepyfile(kernels=KERNELS.format(rounds=1), **files)
        site = tmp_path / "a site"
        site.mkdir(exist_ok=True)
        installed = Path(pytest.__file__).parents[1]
        wanted = [one for name in packages for one in (installed / name, *installed.glob(f"{name}-*.dist-info"))]
        for one in (*wanted, HERE / "ratchet"):
            if one.exists() and not (site / one.name).exists():
                (site / one.name).symlink_to(one)
        return subprocess.run(
            [Path(sys.base_prefix, "bin", "python3"), "-S", "-B", "-m", "pytest", "-p", "ratchet.testing.pytest_plugin",
             "-p", "no:cacheprovider", *given],
            cwd=pytester.path,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site), "HOME": str(pytester.path)},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip

    return run


NO_JAX = """
def test_it(ratchet_latency):
    ratchet_latency(lambda x: x, 1.0)

def test_another():
    pass
"""


def test_without_jax_other_tests_run_and_a_fixture_says_what_is_missing(alone):
    done = alone(PYTEST, test_it=NO_JAX)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "NOT_FOUND: jax is not in this Python (" in done.stdout
    assert "or 'pallas-ratchet[library]'" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.slow
def test_the_tests_need_their_own_jax_and_no_more(alone, pytester):
    """A regression is caught and a change within its share let through, without a package of the judge's own."""
    files = {"test_latency": LATENCY, "test_values": VALUES[: VALUES.index("def test_wrong")]}
    first = alone([*PYTEST, *JAX], "--ratchet-update", **files)
    assert "2 passed" in first.stdout, first.stdout + first.stderr
    path = pytester.path / "ratchet-baseline.json"
    (key, entry), *_ = json.loads(path.read_text()).items()
    path.write_text(json.dumps({key: {**entry, "latency_ms": entry["latency_ms"] / 1.01}}))
    near = alone([*PYTEST, *JAX], "test_latency.py")
    assert "+1.00% over the baseline" in near.stdout
    assert near.returncode == 0
    path.write_text(json.dumps({key: {**entry, "latency_ms": entry["latency_ms"] / 1.5}}))
    slower = alone([*PYTEST, *JAX], "test_latency.py")
    assert "+50.00% over the baseline" in slower.stdout
    assert slower.returncode == 1
