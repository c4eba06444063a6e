"""``import ratchet``: what it gives, and that it gives nothing else."""

import contextlib
import dataclasses
import doctest
import gc
import inspect
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

import ratchet
from ratchet.process import environments
from ratchet.tpu import library
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler import compile as compiling
from ratchet.values import Limit, OpKind, SourceLine
from tests.imports import HERE
from tests.kernels import LAYERNORM
from tests.refusals import refused

X = jnp.ones((256, 128))
UNALIGNED = pl.BlockSpec((128, 100), lambda i: (i, 0))


def kernel(body, **more):
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype), **more)


def doubled(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def turns(n_ref, x_ref, o_ref):
    o_ref[...] = jax.lax.fori_loop(0, n_ref[0], lambda _, a: jnp.sin(a) + x_ref[...], x_ref[...])


class SharedCompiler:
    """The compiler's module with a child that is kept. Another chip has one of its own, as every call has elsewhere."""

    def __init__(self, workers):
        self.workers = workers

    def __getattr__(self, name):
        return getattr(compiling, name)

    def start(self, work, chip, under=None):
        kept = chip is V5E and under is None
        return contextlib.nullcontext(self.workers.compiler) if kept else compiling.start(work, chip, under=under)


@pytest.fixture(autouse=True, scope="module")
def _shared_compiler(workers):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "compiling", SharedCompiler(workers))
        yield


@pytest.fixture(scope="module")
def program():
    return ratchet.compile(kernel(doubled), X)


def test_the_example_of_the_package_runs():
    results = doctest.testmod(ratchet)
    assert results.attempted >= 8
    assert results.failed == 0


def test_all_that_is_public_is_listed_and_described():
    assert dir(ratchet) == sorted(ratchet.__all__)
    for name in ratchet.__all__:
        assert inspect.getdoc(getattr(ratchet, name)), name
    with pytest.raises(AttributeError, match="has no attribute 'tracing'; it has Explanation, Program"):
        ratchet.tracing  # noqa: B018


def test_importing_it_imports_nothing_heavy():
    code = "import ratchet, sys; print(sorted({'jax', 'numpy', 'pandas', 'ratchet.library'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_values_named_in_signatures_are_the_ones_returned(program):
    assert isinstance(program, ratchet.Program)
    assert isinstance(ratchet.model(program), ratchet.Timeline)
    assert isinstance(ratchet.execute(kernel(doubled), X), ratchet.RunResult)


def test_another_jax_compiles_what_this_one_exports(program, monkeypatch):
    asked = []
    monkeypatch.setattr(environments, "environment_of", lambda version: asked.append(version) or Path(sys.prefix))
    made = ratchet.compile(kernel(doubled), X, jax="9.9")
    explanation = ratchet.explain(kernel(doubled), X, jax="9.9")
    assert asked == ["9.9"] * 2
    assert made.compiler == explanation.compiler == program.compiler
    assert ratchet.model(made).latency_ms == ratchet.model(program).latency_ms == explanation.timeline.latency_ms
    assert ratchet.compile(kernel(doubled), X, jax=jax.__version__).compiler == program.compiler
    assert len(asked) == 2, "it is this one"


WEIGHTS = (jnp.ones((256, 512), jnp.bfloat16), jnp.ones((512, 256), jnp.bfloat16))
SPECS = (P(), P(None, "chip"), P("chip"))


def layer(x, up, down):
    def local(x, up, down):
        hidden = kernel(doubled)(x[:, :128].astype(jnp.float32)).sum(0)[0] + jax.nn.gelu(x @ up)
        return jax.lax.psum(hidden.astype(x.dtype) @ down, "chip")

    return jax.shard_map(local, in_specs=SPECS, out_specs=P(), check_vma=False)(x, up, down)


def test_a_step_over_a_slice_is_explained():
    x = jnp.ones((256, 256), jnp.bfloat16)
    explanation = ratchet.explain(layer, x, *WEIGHTS, mesh={"chip": 8}, specs=SPECS)
    assert explanation.status is ratchet.Status.PASS, explanation.reason
    assert len(explanation.timeline.chips) == 8
    kinds = {op.kind: op.limit for op in explanation.ops}
    assert kinds[OpKind.COLLECTIVE] is Limit.LINKS
    assert {OpKind.KERNEL, OpKind.XLA, OpKind.LAUNCH} <= set(kinds)
    compiled = ratchet.compile(layer, x, *WEIGHTS, mesh={"chip": 8}, specs=SPECS)
    assert ratchet.model(compiled).latency_ms == explanation.timeline.latency_ms
    exported = ratchet.export(layer, x, *WEIGHTS, mesh={"chip": 4}, specs=SPECS)
    with refused(ratchet.Status.USAGE, "for 4 devices of tpu, wanted one for platform tpu and a mesh of 1"):
        ratchet.compile(exported)
    with refused(ratchet.Status.USAGE, "give mesh"):
        ratchet.explain(layer, x, *WEIGHTS, specs=SPECS)
    with refused(ratchet.Status.CONTRACT, "a mesh of 3 devices; a slice of v5e has 4 or 8"):
        ratchet.compile(lambda x: 2 * x, x, mesh={"chip": 3}, specs=(P(),))


@pytest.mark.slow
def test_a_type_checker_sees_the_surface(tmp_path):
    snippet = tmp_path / "snippet.py"
    snippet.write_text(
        "import ratchet\n"
        "program: ratchet.Program = ratchet.compile(abs, 1.0, chip='v5e', folder='out')\n"
        "timeline: ratchet.Timeline = ratchet.model(program, scalars={0: [1]})\n"
        "latency: float = timeline.latency_ms\n"
        "outputs: ratchet.RunResult = ratchet.execute(ratchet.export(abs, 1.0), 1.0)\n"
        "verdict: ratchet.Verdict = ratchet.judge_kernel('kernel.py', on='cpu')\n"
        "best: float = ratchet.ledger()['score'].max()\n"
        "status: ratchet.Status = ratchet.Refusal(ratchet.Status.USAGE, '').status\n"
        "wrong: int = ratchet.model(program)\n"
        "ratchet.nothing\n"
    )
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={tmp_path / 'cache'}"]
    command = [sys.executable, "-m", "mypy", *options, str(snippet)]
    environment = {"MYPYPATH": str(HERE)}
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    wrong = [line.partition(": ")[0].rpartition(":")[2] for line in done.stdout.splitlines()[:-1]]
    assert wrong == ["9", "10"], done.stdout + done.stderr


def test_a_program_for_another_chip_is_exported_compiled_and_modelled_as_that_chips():
    seen = []

    def asks(x):
        seen.append(jax.sharding.get_abstract_mesh().abstract_device.device_kind)
        return kernel(doubled)(x)

    program = ratchet.compile(asks, X, chip="v5p")
    assert seen == ["TPU v5"]
    assert program.chip == ratchet.model(program).chip == "v5p"


def test_arguments_may_be_trees_specs_and_numbers():
    tree = {"a": X, "b": (jax.ShapeDtypeStruct(X.shape, X.dtype),)}
    program = export.deserialize(bytearray(ratchet.export(lambda t, y: {"o": t["a"] * y + t["b"][0]}, tree, 2.0)))
    assert [aval.shape for aval in program.in_avals] == [X.shape, X.shape, ()]
    assert [aval.shape for aval in program.out_avals] == [X.shape]
    result = ratchet.execute(lambda t, y: kernel(doubled)(t["a"] * y), {"a": np.ones(X.shape)}, 3.0)
    assert np.all(result.outputs[0] == 6)
    assert result.outputs[0].dtype == np.float32


def test_exporting_leaves_jax_as_it_was():
    from jax._src.pallas.mosaic import lowering

    before = set(lowering._uncacheable_primitives), dict(jax.config.values)
    ratchet.export(kernel(doubled), X)
    with pytest.raises(ratchet.Refusal):
        ratchet.export(lambda x: 1 / 0, X)
    assert (lowering._uncacheable_primitives, dict(jax.config.values)) == before
    assert jax.sharding.get_abstract_mesh().empty


def test_equal_operations_keep_their_own_lines():
    def twice(x_ref, o_ref):
        o_ref[:128] = jnp.sin(x_ref[:128])
        o_ref[128:] = jnp.sin(x_ref[128:])

    first = twice.__code__.co_firstlineno
    timeline = ratchet.model(ratchet.compile(kernel(twice), X))
    places = {line.place for line in timeline.blame.lines if isinstance(line.place, SourceLine)}
    assert {(Path(place.file).name, place.line - first) for place in places} >= {
        ("test_library.py", 1), ("test_library.py", 2),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("function", "status", "message"),
    [
        (lambda x: x @ x, "LOWERING_FAILED", "cannot export: TypeError: dot_general"),
        (lambda x: None, "LOWERING_FAILED", "cannot export: ValueError: it returns no array"),
        (lambda x: jax.pure_callback(lambda y: y, x, x), "HOST_CALLBACK", "it calls the host"),
        (
            kernel(doubled, grid=2, in_specs=[UNALIGNED], out_specs=UNALIGNED),
            "UNALIGNED_BLOCK",
            "last two dimensions",
        ),
    ],
)
def test_what_cannot_be_exported_is_refused_with_its_cause(function, status, message):
    with pytest.raises(ratchet.Refusal, match=message) as refused:
        ratchet.compile(function, X)
    assert refused.value.status is ratchet.Status[status]
    assert refused.value.__cause__ is not None
    assert len(refused.value.message.splitlines()) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ratchet.export(abs, X, chip="v9"), "'v9' is no chip that is known, wanted one of v5e, "),
        (lambda: ratchet.compile(abs, X, chip="v9"), "'v9' is no chip"),
        (lambda: ratchet.compile(b"no program"), "the program cannot be read"),
        (lambda: ratchet.compile(ratchet.export(abs, X), X), "has its shapes: give no arrays"),
        (lambda: ratchet.compile(bytes(export.export(jax.jit(abs))(X).serialize())), "for 1 devices of cpu, wanted"),
        (lambda: ratchet.execute(ratchet.export(abs, X), X[0]), "inputs float32.128. where the program takes"),
        (lambda: ratchet.compile(abs, X, folder=HERE), "is in use, wanted a folder that is empty or new"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_compiled(call, message):
    with pytest.raises(ratchet.Refusal, match=message) as refused:
        call()
    assert refused.value.status is ratchet.Status.USAGE


def test_what_the_compiler_rejects_is_refused_by_its_status():
    needs = kernel(
        lambda x, o, s: o.__setitem__(..., x[...] + s[0, 0]), scratch_shapes=[pltpu.VMEM((99999, 999), X.dtype)]
    )
    with pytest.raises(ratchet.Refusal, match="VMEM") as refused:
        ratchet.compile(needs, X)
    assert refused.value.status is ratchet.Status.VMEM_OVERFLOW


def test_a_folder_that_is_given_is_kept_and_another_lives_as_long_as_the_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = ratchet.compile(ratchet.export(kernel(doubled), X), folder="kept")
    kept = program.dump_dir
    assert kept == tmp_path / "kept"
    cycles = ratchet.model(program).cycles
    del program
    program = ratchet.compile(kernel(doubled), X)
    temporary = program.dump_dir
    assert ratchet.model(program).cycles == cycles
    del program
    gc.collect()
    assert (kept / "schedule").is_dir()
    assert not temporary.exists()


def test_a_program_whose_folder_was_removed_is_refused(program, tmp_path):
    moved = dataclasses.replace(program, dump_dir=tmp_path / "moved")
    with pytest.raises(ratchet.Refusal, match="moved was removed"):
        ratchet.model(moved)


def test_scalars_steer_the_modelled_run():
    looping = kernel(turns, in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec()])
    program = ratchet.compile(looping, jax.ShapeDtypeStruct((1,), jnp.int32), X)
    with pytest.raises(ratchet.Refusal, match="entry parameter 0"):
        ratchet.model(program)
    few, many = (ratchet.model(program, scalars={0: np.array([n], np.int32)}).cycles for n in (2, 20))
    assert many > 2 * few
    with pytest.raises(ratchet.Refusal, match="scalar_inputs for entry parameter 0"):
        ratchet.model(program, scalars={0: np.zeros((2, 2), np.int32)})


def test_integers_steer_each_chip_of_a_slice_by_its_own_part():
    looping = kernel(turns, in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec()])

    def on_each(counts, x):
        return jax.shard_map(looping, in_specs=(P("chip"), P()), out_specs=P("chip"), check_vma=False)(counts, x)

    counts = np.array([2, 2, 20, 2], np.int32)
    explanation = ratchet.explain(on_each, counts, X, mesh={"chip": 4}, specs=(P("chip"), P()))
    assert explanation.status is ratchet.Status.PASS, explanation.reason
    cycles = {chip.place: chip.cycles for chip in explanation.timeline.chips}
    assert max(cycles, key=cycles.get) == 2
    assert max(cycles.values()) > 1.2 * min(cycles.values())


def test_hazards_are_findings_and_not_errors():
    def unwritten(x_ref, o_ref, scratch):
        o_ref[...] = x_ref[...] + scratch[...]

    result = ratchet.execute(kernel(unwritten, scratch_shapes=[pltpu.VMEM(X.shape, X.dtype)]), X)
    (finding,) = result.findings
    assert finding.kind.label == "uninitialised_memory"
    assert "test_library.py" in finding.location


def test_a_kernel_file_is_judged_without_a_row_or_evidence(tmp_path):
    def kept():
        folders = (HERE / "hlo_dumps", HERE / "profile_data")
        return [sorted(folder.iterdir()) for folder in folders] + [(HERE / "results.tsv").read_bytes()]

    before = kept()
    path = tmp_path / "layernorm.py"
    path.write_text(LAYERNORM)
    verdict = ratchet.judge_kernel(path, on="v5e-model")
    assert verdict.status is ratchet.Status.PASS, verdict.reason
    assert verdict.score is not None
    assert verdict.conditions.evaluator == "v5e-model"
    assert (tmp_path / "layernorm.py.lock.json").exists()
    assert kept() == before
    with pytest.raises(ratchet.Refusal, match=r"nowhere\.py is no file"):
        ratchet.judge_kernel(tmp_path / "nowhere.py")


def test_the_ledger_is_read_where_it_is(tmp_path, monkeypatch):
    assert ratchet.ledger(HERE / "results.tsv")["score"].max() > 1000
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ratchet.Refusal, match=r"results\.tsv is no file") as refused:
        ratchet.ledger()
    assert refused.value.status is ratchet.Status.NOT_FOUND
    Path("results.tsv").write_text("score\n1\n")
    with pytest.raises(ratchet.Refusal, match=r"results\.tsv line 1 is"):
        ratchet.ledger()
