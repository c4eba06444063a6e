"""The list of public kernels, and what is said of their records. No kernel of the list is compiled here but one."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax._src import test_util as jtu
from jax.experimental import pallas as pl
from jax.sharding import PartitionSpec as P

import ratchet
from benchmarks.coverage import __main__ as coverage
from benchmarks.coverage import captured, one, page, tested
from benchmarks.coverage.calls import CASES, Call, case
from benchmarks.lib.repositories import INSTALLED, REPOSITORIES, blocks, cells, clone_commands

WHOLE = {
    "name": "jax/double", "traced": "yes", "compiled": "yes", "executed": "yes", "values": "right",
    "compared_with": "reference", "error": 0.0, "modelled": "yes", "latency_ms": 0.002, "reasons": {},
}  # fmt: skip
REFUSED = WHOLE | {
    "name": "tokamax/ragged dot",
    "modelled": "SCHEDULE_UNKNOWN",
    "latency_ms": None,
    "reasons": {"modelled": "no rule | for\nthis"},
}
OVERFLOWN = {"name": "jax/matmul", "traced": "yes", "compiled": "VMEM_OVERFLOW", "reasons": {"compiled": "too large"}}


def test_the_list_has_sixty_kernels_of_pinned_repositories_each_once():
    assert len(CASES) >= 60
    assert {entry.repository for entry in CASES.values()} == set(REPOSITORIES)
    assert all(entry.path.endswith((".py", ".ipynb", ".md")) for entry in CASES.values())
    assert len({entry.path for entry in CASES.values()}) >= 40, "variants of few files are no corpus"
    commits = [known.commit for known in REPOSITORIES.values() if known.commit != INSTALLED]
    assert all(len(commit) == 40 and set(commit) <= set("0123456789abcdef") for commit in commits)
    with pytest.raises(ValueError, match="jax/double"):
        case("jax/double", path="x.py")(lambda module: None)


def test_a_repository_that_was_not_cloned_says_what_to_clone(tmp_path):
    made = one.outcome("tokamax/ragged dot", tmp_path)
    assert made.traced == "NOT_CALLED"
    assert "clone openxla/tokamax to" in made.reasons["traced"]
    commands = clone_commands(tmp_path)
    assert any("openxla/tokamax" in command and REPOSITORIES["tokamax"].commit in command for command in commands)


def test_a_small_kernel_takes_all_steps(tmp_path):
    made = one.outcome("jax/double", tmp_path)
    assert (made.traced, made.compiled, made.executed, made.modelled) == ("yes",) * 4, made.reasons
    assert (made.values, made.compared_with, made.error) == ("right", "reference", 0.0)
    assert made.latency_ms > 0


PROGRAM = (
    "import jax\nimport jax.numpy as jnp\nassert jax.devices()[0].platform == 'tpu'",
    "rows = 1 << 60",
    """
x = jnp.ones((rows, 128))
mesh = jax.make_mesh((1,), ("x",))
spec = jax.sharding.PartitionSpec("x")
double = jax.jit(jax.shard_map(lambda x: 2 * x, mesh=mesh, in_specs=spec, out_specs=spec))
y = double(x)
raise ValueError("it goes on")
""",
)


def test_a_guide_runs_up_to_its_call_which_is_traced_on_another_mesh(tmp_path):
    notebook = tmp_path / "guide.ipynb"
    listed = [{"cell_type": "markdown", "source": ["text"]}]
    listed += [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in PROGRAM]
    notebook.write_text(json.dumps({"cells": listed}))
    sources = cells(notebook)
    assert sources == list(PROGRAM)
    call = captured.of_cells(sources, 2, instead={"rows": 8}, reference=np.sin)
    assert call.where == {"chip": "v5e", "mesh": {"x": 1}, "specs": (P("x"),)}
    assert call.arrays[0].shape == (8, 128)
    assert call.reference is np.sin
    program = ratchet.export(call.function, *call.arrays, chip="v5e", mesh={"x": 4}, specs=call.specs)
    assert export.deserialize(bytearray(program)).nr_devices == 4
    with pytest.raises(ValueError, match="cell 1 calls nothing"):
        captured.of_cells(sources, 1)


class Doubles:
    """As a class of tests that needs a TPU."""

    def __init__(self, name):
        assert name.startswith("test")

    def doubled(self, x):
        @jax.jit
        def double(x):
            def body(x_ref, o_ref):
                o_ref[...] = 2 * x_ref[...]

            return pl.pallas_call(body, x)(x)

        return double(x)

    def test_right(self):
        assert jtu.is_device_tpu_at_least(5)
        assert not jtu.is_device_tpu(5, "p")
        x = jnp.arange(1024.0).reshape(8, 128)
        np.testing.assert_array_equal(self.doubled(self.doubled(x)), 4 * x)

    def test_wrong(self):
        x = jnp.arange(1024.0).reshape(8, 128)
        np.testing.assert_array_equal(self.doubled(self.doubled(x)), 3 * x)

    def test_nothing(self):
        pass


def test_a_test_judges_what_was_executed_here_in_all_its_calls():
    for name, values in (("test_right", "right"), ("test_wrong", "wrong")):
        made = one.taken("some", tested.of_method(Doubles, name, chip="v5e"))
        assert (made.traced, made.compiled, made.executed, made.modelled) == ("yes",) * 4, made.reasons
        assert (made.values, made.compared_with) == (values, "test")
    with pytest.raises(ValueError, match="calls nothing"):
        tested.of_method(Doubles, "test_nothing", chip="v5e")
    assert jax.devices()[0].platform == "cpu", "JAX is as it was"


GUIDE = """
```python
import jax
import numpy as np
assert (rows := 8)
many = 1 << 60
```

```python
%timeit double(1)
```

```python
double = jax.jit(lambda x: 2 * x)
y = double(np.ones((rows, 128)))
raise ValueError("it goes on")
```

```python
x = np.ones((many, 128))
np.testing.assert_array_equal(double(double(x)), 4 * x)
```
"""


def test_a_block_of_a_guide_is_judged_after_what_those_before_define(tmp_path):
    (tmp_path / "guide.md").write_text(GUIDE)
    sources = blocks(tmp_path / "guide.md")
    assert len(sources) == 3
    for number, first in ((0, 1), (1, 2)):
        call = tested.of_blocks(sources, 2, chip="v5e", number=number, instead={"many": 4})
        assert call.arrays[0].shape == (4, 128)
        assert call.arrays[0][0, 0] == first
        assert call.check() is None


def test_a_kernel_on_several_chips_takes_all_steps_but_execution_without_their_devices():
    made = one.taken(
        "some", Call(function=lambda x: 2 * x, arrays=(np.ones((8, 128)),), mesh={"x": 4}, specs=(P("x"),))
    )
    assert made.chips == "v5e x=4"
    assert (made.traced, made.compiled, made.modelled) == ("yes",) * 3, made.reasons
    assert made.executed in ("yes", "INFRASTRUCTURE")
    assert "| of them, on several chips | 1 |" in page.text([WHOLE, {**WHOLE, "chips": "v5e x=4"}])


def test_the_share_is_of_those_that_compile():
    jax, tokamax, everything = page.totals([WHOLE, OVERFLOWN, REFUSED])
    assert (jax["kernels"], jax["compiled"], jax["share of compiled"]) == (2, 1, "100%")
    assert (tokamax["both"], tokamax["executed"], tokamax["modelled"]) == (0, 1, 0)
    assert (everything["repository"], everything["share of compiled"]) == ("all", "50%")


def test_a_finding_is_said_as_it_was_read_and_only_where_it_is_one():
    name, said = next(iter(page.READ.items()))
    assert set(page.READ) <= set(CASES)
    found = {"name": name, "traced": "yes", "compiled": "yes", "executed": "yes", "values": "finding"}
    assert said in page.text([found])
    assert said not in page.text([{**found, "values": "right"}])


def test_the_page_names_every_refusal_and_counts_every_repository():
    text = page.text([WHOLE, OVERFLOWN, REFUSED])
    assert "*jax/matmul*, compiled: VMEM_OVERFLOW: too large" in text
    assert "no rule / for this" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[1] for row in rows[1:]] == ["2", "1", "3"]
    assert {row.count("|") for row in rows} == {9}
    beside = page.text([WHOLE, OVERFLOWN], "libtpu 2, jax 2", {"libtpu 1, jax 1": [WHOLE]})
    assert "With libtpu 2, jax 2:" in beside
    assert "| all, with libtpu 1, jax 1 | 1 |" in beside


def test_kernels_on_several_cores_have_a_section_that_is_written_alone():
    name = "jax-source/VectorSubcoreTest, barrier"
    found = {**WHOLE, "name": name, "values": "finding", "modelled": "NOT_MODELLED", "reasons": {"modelled": "why"}}
    whole = page.text([WHOLE, found])
    assert "| all | 1 | 1 | 1 | 1 | 1 | 0 | 1 |" in whole.partition(page.SEVERAL)[0]
    assert "| all | 1 | 1 | 1 | 1 | 0 | 1 | 0 |" in whole.partition(page.SEVERAL)[2]
    assert f"*{name}*: {page.READ[name]}" in whole
    assert "1 latencies are refused: NOT_MODELLED." in whole
    assert page.with_several(whole + "\n## More\n", [found]) == whole + "\n## More\n"
    assert page.with_several(page.text([WHOLE]), [found]) == whole


def test_a_kernel_has_a_line_for_the_terminal():
    assert page.row(WHOLE)["error"] == "0.0e+00"
    assert page.row(WHOLE)["µs"] == "2.00"


def test_an_error_is_relative_to_the_largest_value():
    for got, wanted, error in (
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 3.0], [1.0, 2.0], 0.5),
        ([np.inf, 2.0], [np.inf, 2.0], 0.0),
        ([np.nan, 2.0], [1.0, 2.0], np.inf),
        ([1.0, 2.0, 3.0], [1.0, 2.0], np.inf),
    ):
        assert one.largest_error([np.array(got)], [np.array(wanted)]) == error


def test_a_process_that_dies_or_does_not_end_is_a_record(tmp_path, monkeypatch):
    monkeypatch.setattr(coverage, "ONE", "no.such.module")
    assert coverage.outcome("jax/double", tmp_path, 60)["traced"] == "DIED"
    monkeypatch.setattr(coverage, "ONE", "benchmarks.coverage.one")
    assert coverage.outcome("jax/double", tmp_path, 0.01)["traced"] == "TIMEOUT"


def test_resume_keeps_what_is_known(tmp_path, monkeypatch, capsys):
    file, asked = tmp_path / "out.json", []
    file.write_text(json.dumps({"kernels": [WHOLE, {"name": "no longer listed"}]}))
    monkeypatch.setattr(coverage, "outcome", lambda name, *_: asked.append(name) or WHOLE | {"name": name})
    arguments = ["--json", str(file), "--resume", "--only", "jax/double", "jax/matmul", "--page"]
    monkeypatch.setattr("sys.argv", ["coverage", *arguments, str(tmp_path / "page.md")])
    coverage.main()
    assert asked == ["jax/matmul"]
    assert [record["name"] for record in json.loads(file.read_text())["kernels"]] == ["jax/matmul", "jax/double"]
    assert "| jax-ml/jax | 2 |" in (tmp_path / "page.md").read_text()
    assert "no longer listed" not in capsys.readouterr().out


def test_what_another_compiler_changed_is_listed_where_it_is_more_than_a_trifle():
    before = {**WHOLE, "latency_ms": 1.0, "vmem_bytes": 100, "spills": 0, "copied_bytes": 0}
    assert page.changes([before], [{**before, "latency_ms": 1.004}]) == []
    (row,) = page.changes([before], [{**before, "latency_ms": 1.1, "spills": 7}])
    assert row == {"kernel": before["name"], "latency %": pytest.approx(10), "spills": "0 → 7"}
    assert page.changes([before], [{**before, "latency_ms": None}])[0]["latency %"] is None
    assert page.changes([before], [REFUSED, OVERFLOWN]) == []
