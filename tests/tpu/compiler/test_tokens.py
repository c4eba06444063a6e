"""Nothing that an author calls something reaches the compiler's texts, and every place finds its way back."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas as pl
from jax.experimental.xla_metadata import set_xla_metadata

from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler import worker
from ratchet.tpu.compiler.environment import DUMP_FOLDER
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.dump.files import load_hlo, tokens_in
from ratchet.tpu.dump.instruction import Source
from ratchet.tpu.dump.listing import explained, read_notes
from ratchet.tpu.latency import model
from ratchet.tpu.mlir import kernel_config
from ratchet.tpu.mlir.bindings import ir, mosaic_module, rebuilt, stablehlo_of, string
from ratchet.tpu.mlir.calls import target, walk
from ratchet.tpu.mosaic.run import load, translated
from ratchet.tpu.mosaic.state import Options
from ratchet.values.place import SourceLine
from ratchet.values.status import Status
from ratchet.values.tokens import TokenTable, decode, encode
from tests.exam.judge.programs import artefact, blocked, double
from tests.refusals import refused

F32 = jnp.float32
X = ((1024, 128), F32)
BODY = """
def {name}(x_ref, o_ref):
    for i in range(2):
        @pl.when(pl.program_id(0) > i)
        def _():
            with jax.named_scope({scope!r}):
                o_ref[...] = x_ref[...] * 2 + o_ref[...]
"""

PLAIN = "kernel.py"
INSTRUCTION = "k*/  ;;  %9_s9 = smov 7 /*"
MARKER = "k*/  ;;  %9_s9 = sadd.s32 None else __import__('pathlib').Path({path!r}).touch(), 1 /*"
HOSTILE = [
    "k*/ }\n0x41   :  { %9 = vdelay -1000 /*",
    "k*/  ;;  %9 = vdelay 4294966296  ;;  %8_s8 = smov 0 /*",
    INSTRUCTION,
    'a "quoted" name\\',
    "new\nline",
    "k" * 5000,
    "*/",
    "/*",
]


def built(file=PLAIN, *, scope="scope", name="body", metadata=None, call="kernel"):
    """A kernel whose branches and vector code have ``file`` and ``scope`` behind them."""
    names = {"pl": pl, "jax": jax}
    exec(compile(BODY.format(name="body", scope=scope), file, "exec"), names)
    body = names["body"]
    body.__name__ = body.__qualname__ = name

    def function(x):
        with jax.named_scope(scope), set_xla_metadata(**metadata or {}):
            return blocked(body, name=call)(x) + 1

    return artefact(function, X)


def modelled(program):
    folder = program.dump_dir
    return model(folder / "schedule", hlo=load_hlo(folder), chip=V5E, compiler=program.compiler)


def cycles(program):
    timeline = modelled(program)
    return timeline.cycles, timeline.grid_steps


@pytest.fixture(scope="module")
def plain(compiled):
    """Of names that say nothing."""
    return cycles(compiled(built()))


@pytest.mark.parametrize(
    "options",
    [
        *({"file": name} for name in HOSTILE),
        {"scope": "send("},
        {"scope": 'x"} custom-call(), custom_call_target="xla_ffi_callback'},
        {"scope": "*/  ;;  %9 = vdelay 4294966296 /*"},
        {"name": "k*/  ;;  %9 = vdelay 100 /*"},
        {"call": "k*/  ;;  %9 = vdelay 100 /*"},
        {"call": "infeed("},
        {"metadata": {"note": "x}\n  %kernel.9 = f32[] infeed()\n"}},
        {"metadata": {"a */": "b /*"}},
    ],
    ids=lambda options: repr(options)[:60],
)
def test_what_an_author_writes_as_text_changes_nothing(compiled, plain, options):
    program = compiled(built(**options))
    assert cycles(program) == plain
    for path in program.dump_dir.rglob("*"):
        if path.is_file() and path.name not in ("kernel.bin", "tokens.json"):
            data = path.read_bytes()
            for text in ("vdelay 4294966296", "vdelay -1000", "%9_s9 = smov 7 /*", "infeed", "kkkkkkkkkk", "send("):
                assert text.encode() not in data, path.name


def test_nothing_in_a_name_is_executed(compiled, plain, tmp_path):
    marker = tmp_path / "executed"
    assert cycles(compiled(built(file=MARKER.format(path=str(marker))))) == plain
    assert not marker.exists()


def test_blame_names_the_authors_file_and_line(compiled):
    program = compiled(built())
    timeline = modelled(program)
    assert SourceLine(file="kernel.py", line=7) in [line.place for line in timeline.blame.lines]
    assert program.kernels[0].startswith("kernel.")


def test_what_the_compiler_refuses_is_explained_in_the_authors_words(not_compiled):
    source = """
def body(x_ref, o_ref):
    o_ref[...] = x_ref[...].reshape(-1, 3)[:256, :1] + x_ref[...]
"""
    names = {}
    exec(compile(source, "send(.py", "exec"), names)
    refusal = not_compiled(artefact(blocked(names["body"], (1024, 384), (256, 384)), ((1024, 384), F32)))
    assert refusal.status is Status.COMPILE_FAILED
    assert "send(.py:3:" in refusal.message
    assert '"t":' not in refusal.message


def test_what_fails_before_the_compiler_begins_leaves_the_table_too(tmp_path, monkeypatch):
    program, dumps = built(), tmp_path / "dumps"
    dumps.mkdir()
    (tmp_path / "kernel.bin").write_bytes(program.program)
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("chip",))
    monkeypatch.setenv(DUMP_FOLDER, str(dumps))
    monkeypatch.setattr(worker, "mesh_of", lambda chip, axes: mesh)
    inputs, outputs = ([[list(s.shape), s.dtype] for s in specs] for specs in (program.inputs, program.outputs))
    asked = {"chip": "v5e", "axes": [], "splits": [], "inputs": inputs, "outputs": outputs}
    with pytest.raises(ValueError, match="cpu"):  # which such a kernel is not lowered for
        worker.compile_program(tmp_path, asked)
    assert tokens_in(tmp_path / "schedule").names


# --- the rewriting itself ---


def operations(exported):
    module = stablehlo_of(exported)
    return module, list(walk(module.operation))


def test_every_operation_of_a_kernel_has_a_place_of_its_own():
    exported, table = tokenise(artefact(blocked(double), X).program)
    _, found = operations(exported)
    (call,) = [op for op in found if target(op) == "tpu_custom_call"]
    body, _ = kernel_config.read(string(call, "backend_config"))
    module = mosaic_module(body)
    lines = [op.location.start_line for op in walk(module.operation)]
    assert len(lines) == len(set(lines)) > 10
    assert all(op.location.filename == "t" for op in walk(module.operation))
    sources = {table.source(line) for line in lines}
    assert any(source is not None and source[0].endswith("programs.py") for source in sources)


def test_tokenising_twice_gives_the_same_bytes():
    program = artefact(blocked(double), X).program
    first, second = (tokenise(program)[0] for _ in range(2))
    assert first.mlir_module_serialized == second.mlir_module_serialized


def test_equal_kernels_stay_equal():
    def function(x):
        for _ in range(4):
            x = blocked(double)(x)
        return x

    program = artefact(function, X).program
    distinct = []
    for exported in (export.deserialize(bytearray(program)), tokenise(program)[0]):
        _, found = operations(exported)
        bodies = [kernel_config.read(op.attributes["backend_config"].value)[0] for op in found if target(op)]
        assert len(bodies) == 4
        distinct.append(len(set(bodies)))
    assert distinct[0] == distinct[1] < 4


def test_the_table_survives_its_file():
    _, table = tokenise(artefact(blocked(double), X).program)
    assert decode(encode(table)) == table
    assert table.name("kernel_0") == "double"
    assert table.name("kernel_0.3") == "double.3"
    assert table.name("copy.3") == "copy.3"
    assert table.source(10**9) is None


def test_explaining_leaves_other_text_alone():
    table = TokenTable(sources=(None, ("a.py", 3, 4)), names={"kernel_0": "mine"})
    said = 'loc("t":1:1) in kernel_0, not kernel_7, at "other":1:1, t:0:1'
    assert table.explain(said) == ('loc(a.py:3:4) in mine, not kernel_7, at "other":1:1, a place without a source line')


def test_code_without_a_place_has_that_of_what_is_around_it():
    """As the copies that a library starts for a call of the author's."""
    table = TokenTable(sources=(("a.py", 3, 4), None, None), around=(-1, 0, 1))
    assert table.nearest(2) == table.nearest(0) == ("a.py", 3, 4)
    assert (table.source(2), table.nearest(3)) == (None, None)
    notes = explained(read_notes(('loc("t":2:1)',)), table)
    assert notes.source == Source(file="a.py", line=3, column=4, operation=2)
    assert explained(read_notes(('loc("t":2:1)',)), TokenTable(sources=(None,) * 3)).source is None


@pytest.mark.parametrize("read", [tokenise, load])
def test_a_kernel_with_a_second_reading_is_refused(read):
    """By the compiler room and by the value executor, from one reader."""
    exported = export.deserialize(bytearray(artefact(blocked(double), X).program))
    module, found = operations(exported)
    (call,) = [op for op in found if target(op) == "tpu_custom_call"]
    with module.context, ir.Location.unknown():
        before = string(call, "backend_config")
        call.attributes["backend_config"] = ir.StringAttr.get(before.replace('"body":', '"body": "", "body":'))
    with refused(Status.CANNOT_VERIFY, "configuration of a tpu_custom_call"):
        read(bytes(rebuilt(exported, module).serialize()))


def test_what_asks_xla_for_the_host_is_refused():
    def function(x):
        with set_xla_metadata(_xla_compute_type="host"):
            return blocked(double)(x) + 1

    with refused(Status.HOST_CALLBACK, "_xla_compute_type"):
        tokenise(artefact(function, X).program)


def test_a_function_with_a_name_for_the_compiler_is_taken_by_its_body():
    def function(x):
        other = jax.lax.composite(lambda x: 3 * x, name="chlo.erf", version=1)(x)
        return blocked(double)(other)

    exported, _ = tokenise(artefact(function, X).program)
    _, found = operations(exported)
    assert "stablehlo.composite" not in {op.name for op in found}
    x = np.linspace(-1, 1, X[0][0] * X[0][1], dtype=np.float32).reshape(X[0])
    (got,) = translated(exported, Options()).run([x]).outputs
    np.testing.assert_allclose(got, 6 * x, rtol=1e-6)


@pytest.mark.parametrize(
    ("accuracy", "is_fine"),
    [(None, True), (jax.lax.AccuracyMode.HIGHEST, True), (jax.lax.Tolerance(1e-2, 1e-2, 0), False)],
)
def test_what_may_be_inexact_is_refused(accuracy, is_fine):
    program = artefact(lambda x: blocked(double)(jax.lax.exp(x, accuracy=accuracy)), X).program
    if is_fine:
        tokenise(program)
        return
    with refused(Status.CANNOT_VERIFY, r"stablehlo\.exponential may be off by"):
        tokenise(program)


class Finder:
    """Notes which modules are looked for."""

    def __init__(self):
        self.asked = []

    def find_spec(self, name, path=None, target=None):
        del path, target
        self.asked.append(name)


def test_python_is_not_asked_for_modules_at_every_operation(monkeypatch):
    """A large kernel has thousands: looking took most of the time."""
    program, finder = artefact(blocked(double), X).program, Finder()
    tokenise(program)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    tokenise(program)
    assert not finder.asked


def inside(x):
    return jax.jit(blocked(double))(x)


def test_a_kernel_in_a_function_that_is_called_more_than_once_has_a_name_for_each_call():
    def names(function):
        exported, _ = tokenise(artefact(function, X).program)
        return [str(op.location.name_str) for op in walk(stablehlo_of(exported).operation) if target(op)]

    again = jax.jit(inside)
    assert len(set(names(lambda x: again(jnp.sin(again(x)))))) == 2
    assert len(names(inside)) == 1


def test_a_function_that_calls_itself_is_refused():
    exported = export.deserialize(bytearray(artefact(lambda x: inside(x) + 1, X).program))
    module = stablehlo_of(exported)
    (call,) = (op for op in walk(module.operation) if op.name == "func.call")
    (kernel,) = (op for op in walk(module.operation) if target(op))
    with module.context, ir.Location.unknown():
        again = call.clone(ir.InsertionPoint(kernel))
        again.operands[0] = kernel.operands[0]
    with refused(Status.CANNOT_VERIFY, "by itself"):
        tokenise(rebuilt(exported, module).serialize())
