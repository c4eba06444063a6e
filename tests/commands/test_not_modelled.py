"""A kernel that is bound by the SparseCores' own instructions: no command gives it a number or a rank."""

import re

import pytest

from ratchet.commands.cli import main
from ratchet.values.status import Status
from tests.commands.test_action import committed
from tests.testing.test_pytest_plugin import sample  # noqa: F401 - a fixture

pytest_plugins = ["pytester"]

KERNEL = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

TURNS = 1000

def body(x_ref, o_ref, buffer):
    rows = pl.ds((jax.lax.axis_index("c") * 16 + jax.lax.axis_index("s")) * 32, 32)
    pltpu.sync_copy(x_ref.at[rows], buffer)

    @pl.loop(0, TURNS)
    def _(_turn):
        buffer[0, pl.ds(0, 16)] = buffer[0, pl.ds(0, 16)] * 1.5 + 1.0

    pltpu.sync_copy(buffer, o_ref.at[rows])

def scaled(x):
    mesh = plsc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s", num_cores=2, num_subcores=16)
    kernel = pl.kernel(body, out_type=x, mesh=mesh, scratch_types=[pltpu.VMEM((32, 128), jnp.float32)])
    return kernel(jnp.sin(x)) + 1
"""
LIST = """
[[tool.ratchet.ci]]
target = "sparse.py:scaled"
inputs = ["f32[1024,128]"]
chips = ["v6e"]
"""
OF = ["sparse.py:scaled", "--input", "f32[1024,128]", "--chip", "v6e"]
LATENCY = """
import pytest, numpy as np
from sparse import scaled

@pytest.mark.tpu_kernel(chip="v6e")
def test_latency(ratchet_latency):
    print("took", ratchet_latency(scaled, np.ones((1024, 128), np.float32)))
"""


def unjudged(*_, **__):
    pytest.fail("nothing is judged")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["explain", *OF], Status.NOT_MODELLED),
        (["tune", *OF[:1], "TURNS=1000,2000", *OF[1:]], Status.NOT_MODELLED),
        (["fit", *OF[:1], "TURNS=1000,2000", *OF[1:]], None),
        (["ci"], None),
    ],
    ids=["explain", "tune", "fit", "ci"],
)
def test_no_command_gives_work_of_the_sparse_cores_a_number(words, status, tmp_path, monkeypatch, capsys):
    committed(tmp_path, "base", {"sparse.py": KERNEL, "pyproject.toml": LIST})
    monkeypatch.chdir(tmp_path)
    code = main(words, unjudged)
    said = "".join(capsys.readouterr())
    assert not re.search(r"\d m?s modelled|\d ms|90 %|fastest", said), said
    assert "SparseCores" in said
    assert "fits" not in said
    assert status is None or code == status.exit_code


@pytest.mark.slow
def test_nor_do_the_fixtures_of_tests(sample):  # noqa: F811
    result = sample(sparse=KERNEL, test_latency=LATENCY)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*NOT_MODELLED*the SparseCores*"])
    result.stdout.no_fnmatch_line("*ms modelled*")
