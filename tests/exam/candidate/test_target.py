"""A function of the user's, by name, with its inputs: exported in a jail that holds the files it imports."""

import shutil
import sys
from pathlib import Path

import jax
import pytest
from jax import export
from jaxlib.mlir.dialects import stablehlo

from ratchet.exam.candidate import arrays, target
from ratchet.process import key
from ratchet.process.sandbox import interpreter
from ratchet.process.sandbox.child import NAMES
from ratchet.tpu.exporting import in_stablehlo
from ratchet.values import ArraySpec
from ratchet.values.status import Refusal, Status
from tests.refusals import refused
from tests.walls import lacking

HELPER = """
def scaled(x_ref, o_ref, *, scale):
    o_ref[...] = x_ref[...] * scale
"""
KERNELS = """
import functools, logging
import jax
from jax.experimental import pallas as pl
from .helper import scaled


@functools.partial(jax.jit, static_argnames="scale")
def double(x, *, scale=2.0):
    return pl.pallas_call(functools.partial(scaled, scale=scale), out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def of_tree(parameters, x):
    return {"y": double(x) + parameters["bias"]}


def generate_inputs(key):
    return {"bias": jax.random.normal(key, (128,))}, jax.random.normal(key, (8, 128))


def reads_a_secret(x):
    from pathlib import Path
    return x + len(Path(__file__).parent.joinpath("secret.txt").read_text())


def wrong(x):
    return x @ x


class Layer:
    apply = staticmethod(double)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a source")
    package = folder / "src" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text(HELPER)
    (package / "kernels.py").write_text(KERNELS)
    (package / "secret.txt").write_text("secret")
    return folder / "src"


def one(source, attribute="double"):
    return target.parse(f"pkg.kernels:{attribute}", folders=[source])


def test_what_is_exported_and_from_which_files(source):
    made = target.export(one(source), target.inline(["f32[8,128]"], options={"scale": 3.0}))
    assert made.inputs == made.outputs == (ArraySpec(shape=(8, 128), dtype="float32"),)
    assert set(made.files) == set(made.imported) == {"pkg/__init__.py", "pkg/helper.py", "pkg/kernels.py"}
    assert b"tpu_custom_call" in made.program
    assert str(source).encode() not in made.program, "files are named from the source folder on"


def test_inputs_come_from_a_function_of_a_key_pytrees_too(source):
    made = target.export(one(source, "of_tree"), target.inline(["generate_inputs"], chip="v6e"))
    assert [str(spec) for spec in made.inputs] == ["float32[128]", "float32[8,128]"]
    assert [str(spec) for spec in made.outputs] == ["float32[8,128]"]


@pytest.mark.parametrize(
    ("attribute", "status", "said"),
    [
        ("wrong", Status.LOWERING_FAILED, r"pkg/kernels\.py:\d+: wrong: "),
        ("absent", Status.CONTRACT, "absent"),
        ("reads_a_secret", Status.LOWERING_FAILED, r"there is no pkg/secret\.txt here: name files .* under `include`"),
    ],
)
def test_what_fails_names_the_line(source, attribute, status, said):
    with refused(status, said):
        target.export(one(source, attribute), target.inline(["f32[8,128]"]))


@pytest.fixture
def configured(source, tmp_path):
    """A source folder, and the configuration above it."""
    return shutil.copytree(source, tmp_path / "src"), tmp_path / "pyproject.toml"


def test_files_that_a_module_reads_are_named_in_the_configuration(configured):
    source, file = configured
    file.write_text('[tool.ratchet]\ninclude = ["src/pkg/*.txt", "*.toml"]\n')
    made = target.export(one(source, "reads_a_secret"), target.inline(["f32[8,128]"]))
    assert "pkg/secret.txt" in made.files
    assert not any(path.endswith(".toml") for path in made.files), "it is not below the source folder"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "is no TOML"),
        ('include = "pkg/*"', "wanted a list of patterns"),
        ('include = ["/etc/*"]', "wanted patterns"),
    ],
)
def test_what_is_no_list_of_files_is_refused(configured, text, said):
    source, file = configured
    file.write_text(f"[tool.ratchet]\n{text}\n")
    with refused(Status.USAGE, said):
        target.closure(one(source, "double"))


def test_another_python_exports_it(source):
    """The same one here, started in the way of another: from sources, with its own path."""
    made = target.export(one(source, "Layer.apply"), target.inline(["bf16[8,128]"]), python=sys.executable)
    assert [str(spec) for spec in made.outputs] == ["bfloat16[8,128]"]


def test_a_program_of_a_newer_jax_is_written_in_the_stablehlo_that_the_judge_reads():
    program = export.export(jax.jit(lambda x: x + 1), platforms=("tpu",))(jax.ShapeDtypeStruct((8,), "float32"))
    assert stablehlo.get_current_version() == target.newest_stablehlo()
    assert in_stablehlo(program, target.newest_stablehlo()) is program
    older = in_stablehlo(program, "1.10.0")
    assert b"StableHLO_v1.10.0" in older.mlir_module_serialized
    assert b"StableHLO_v1.10.0" not in program.mlir_module_serialized
    assert export.deserialize(older.serialize()).mlir_module() == program.mlir_module()


def test_an_interpreter_says_where_its_packages_are():
    here = interpreter.find(sys.executable)
    assert any(path.endswith("site-packages") for path in here.path)
    assert "" not in here.path


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/true"])
def test_what_is_no_python_is_refused(python):
    with refused(Status.NOT_FOUND, python):
        interpreter.find(python)


def test_a_file_is_the_module_of_its_outermost_package(source):
    found = target.parse(f"{source / 'pkg' / 'kernels.py'}:double")
    assert (found.module, found.attribute, found.source) == ("pkg.kernels", "double", source)
    script = source / "pkg" / "loose" / "kernel.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text("")
    found = target.parse(str(script))
    assert (str(found), found.source) == ("kernel:kernel_fn", script.parent)


def test_an_installed_module_needs_no_source(source):
    assert target.parse("jax.nn:relu", folders=[source]).source is None


@pytest.mark.parametrize("text", ["pkg.kernels:", "pkg kernels:f", "a:b:c", ":f", ""])
def test_what_is_no_target_is_refused(text, source):
    with refused(Status.USAGE, "no target"):
        target.parse(text, folders=[source])


@pytest.mark.parametrize(
    ("text", "shown"),
    [("f32[8, 128]", "float32[8,128]"), ("bfloat16[4]", "bfloat16[4]"), ("s32[]", "int32[]"), ("pred[2]", "bool[2]")],
)
def test_arrays_are_read(text, shown):
    assert str(arrays.array(text)) == shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, r"wanted dtype\[size,size\]") for text in ("f32", "f32[a]", "[8]", "f32[8]x", "f32[-1]")),
        ("bf17[8]", "'bf17' in .* is no dtype"),
        ("f32[2147483648]", "sizes below"),
        ("s64[8]", "int64 as int32"),
    ],
)
def test_what_is_no_array_of_a_chip_is_refused(text, said):
    with refused(Status.USAGE, said):
        arrays.array(text)


def test_arrays_on_a_mesh_say_how_they_are_split():
    spec, split = arrays.split_array("bf16[2048@chip, 1024]")
    assert (str(spec), split) == ("bfloat16[2048,1024]", (("chip",), ()))
    assert arrays.split_array("f32[8,16@x+y]")[1] == ((), ("x", "y"))
    assert arrays.axes("x=2, y=4") == {"x": 2, "y": 4}
    case = target.inline(["bf16[2048@chip,1024]", "f32[8]"], mesh="chip=8")
    assert (case.mesh, case.splits) == ({"chip": 8}, ((("chip",), ()), ((),)))


@pytest.mark.parametrize(
    ("inputs", "mesh", "said"),
    [
        (["f32[8@chip]"], "", "say the mesh, too"),
        (["f32[8@row]"], "chip=4", "no axis 'row' in the mesh"),
        (["f32[6@chip]"], "chip=4", "4 chips cannot share 6 rows"),
        (["f32[8]"], "chip:4", "is no mesh: wanted axis=size"),
        (["f32[8+chip]"], "chip=4", "is no array"),
        (["f32[8@]"], "chip=4", "is no array"),
    ],
)
def test_what_does_not_lie_on_a_mesh_is_refused(inputs, mesh, said):
    with refused(Status.USAGE, said):
        target.inline(inputs, mesh=mesh)


def test_every_short_dtype_is_one_of_jax():
    for text in ("bf16", "s2", "u4", "pred", "c64", "f8e8m0fnu", "f4e2m1fn", "float8_e4m3"):
        dtype = arrays.array(f"{text}[8]").dtype
        assert jax.ShapeDtypeStruct((8,), dtype).dtype.name == dtype


def test_cases_are_tables(tmp_path):
    file = tmp_path / "shapes.toml"
    file.write_text(
        '[small]\ninputs = ["f32[8,128]"]\noptions = { causal = true }\n[large]\ninputs = "make"\nchip = "v6e"\n'
    )
    small, large = target.cases(file)
    assert (small.name, dict(small.options), small.chip) == ("small", {"causal": True}, "v5e")
    assert (large.generator, large.inputs, large.chip) == ("make", (), "v6e")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no case"),
        ("[a]\n", r"\[a\]: inputs is None"),
        ('[a]\ninputs = ["f32[8]"]\nchip = "v9"\n', "'v9' is no chip"),
        ('[a]\ninputs = ["f32[8]"]\nchip = ["v5e"]\n', "is no chip"),
        ('[a]\ninputs = ["f32[8]"]\noptions = 1\n', "keyword arguments"),
        ('[a]\ninputs = ["f32[8]"]\noption = { causal = true }\n', r"\[a\] has 'option'; a case knows inputs, options"),
        ('chip = "v6e"\n[a]\ninputs = ["f32[8]"]\n', "'chip' is outside of a table"),
        ('[a]\ninputs = ["f32[8]"]\noptions = { since = 2024-01-01 }\n', "since is datetime.date"),
        ('[a]\ninputs = ["f32[8]"]\noptions = { a = [{ b = 10:00:00 }] }\n', "options: a is"),
        ('["a/b"]\ninputs = ["f32[8]"]\n', "no name of a case"),
        ('[".."]\ninputs = ["f32[8]"]\n', "no name of a case"),
        ('[""]\ninputs = ["f32[8]"]\n', "no name of a case"),
        ('["a\\nb"]\ninputs = ["f32[8]"]\n', "no name of a case"),
        ("[a", "no TOML"),
    ],
)
def test_what_is_wrong_with_a_case_is_said(tmp_path, text, said):
    file = tmp_path / "shapes.toml"
    file.write_text(text)
    with refused(Status.USAGE, said):
        target.cases(file)


HOSTILE = """
import os, socket, subprocess, sys
def tried(what):
    try: return what() and "done"
    except OSError as error: return type(error).__name__
tries = [lambda: open({key!r}).read(), lambda: open({new!r}, "w"), lambda: open("/etc/passwd").read(), os.fork,
         lambda: subprocess.run(["/bin/true"]), lambda: os.execv("/bin/true", ["true"]), lambda: os.listdir("/"),
         lambda: socket.create_connection(("127.0.0.1", 1)), lambda: socket.socket(socket.AF_UNIX)]
sys.exit(" ".join(map(tried, tries)))
"""


def test_an_interpreter_is_asked_and_run_behind_all_walls(tmp_path, monkeypatch):
    if lacking(*NAMES):
        pytest.skip(lacking(*NAMES))
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "key").write_text("secret")
    hostile = HOSTILE.format(key=str(tmp_path / "keys" / "key"), new=str(tmp_path / "new"))
    monkeypatch.setattr(interpreter, "_QUESTION", hostile)
    with pytest.raises(Refusal) as caught:
        interpreter.find(sys.executable)
    assert caught.value.message.rpartition(": ")[2].split() == ["PermissionError"] * 9
    assert not (tmp_path / "new").exists()


def test_a_script_is_no_interpreter(tmp_path):
    """It would start what it likes, before any wall of a Python's."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexec {sys.executable} $@\n")
    python.chmod(0o755)
    with refused(Status.NOT_FOUND, "is a script"):
        interpreter.find(python)
    assert not (tmp_path / "ran").exists()


def test_an_interpreter_that_has_to_read_the_folder_of_the_key_is_refused(monkeypatch):
    monkeypatch.setattr(key, "path", lambda: Path(sys.prefix, "home", "key"))
    with refused(Status.USAGE, "this tool's key"):
        interpreter.find(sys.executable)


def test_a_file_may_have_any_name_that_a_module_can_be_found_by(tmp_path):
    """``1st.py`` cannot be imported by a statement, and is by its name."""
    text = "import jax.numpy as jnp\ndef double(x):\n    return jnp.add(x, x)\n"
    for name in ("1st.py", "class.py", "a-b.py", "two words.py"):
        (tmp_path / name).write_text(text)
        made = target.export(target.parse(f"{tmp_path / name}:double"), target.inline(["f32[8,128]"]))
        assert made.outputs == (ArraySpec(shape=(8, 128), dtype="float32"),)
    (tmp_path / "a.b.py").write_text(text)
    with refused(Status.USAGE, "cannot be imported, for the dot in its name: rename it"):
        target.parse(f"{tmp_path / 'a.b.py'}:double")


@pytest.mark.parametrize("text", ["folder", "folder:double", "./folder"])
def test_a_folder_is_no_target_and_says_what_is(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with refused(Status.USAGE, "is a folder: wanted package.module:function, path/file.py:function"):
        target.parse(text)
    (tmp_path / "folder" / "__init__.py").touch()
    assert target.parse("folder:double").source == tmp_path, "a package"


def test_a_module_that_is_nowhere_is_refused_without_a_jail(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(target, "Child", None)
    with refused(Status.NOT_FOUND, "there is no module nowhere.at here or in src"):
        target.export(target.parse("nowhere.at:all"), target.inline(["f32[8,128]"]))
