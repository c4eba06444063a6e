"""What runs as the judge is what was hashed: whatever else lies in the tree or in the caller's environment."""

import importlib.machinery
import os
import py_compile
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from ratchet.process.boot import bootstrap, bytecode, children, home, installed, sources
from ratchet.values.status import Status
from tests.imports import HERE
from tests.workspaces import Workspace

PLANTED = "import os\nos.write(2, b'PLANTED CODE RAN\\n')\n"
MARK = "PLANTED CODE RAN"


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return Workspace.new(tmp_path_factory.mktemp("start") / "tree")


@pytest.fixture
def space(clean, tmp_path):
    return clean.copy(tmp_path / "tree")


def said(space: Workspace, *arguments: str, **environment: str) -> str:
    """All that ``./ratchet.sh`` prints; it has to run."""
    done = space.ratchet(*(arguments or ("log",)), **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_file_in_the_tree_shadows_no_module(space):
    names = ("sitecustomize", "usercustomize", "json", "git", "argparse/__init__", "typing", "dataclasses")
    for name in names:
        file = space.root / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(PLANTED)
    assert MARK not in said(space)
    assert MARK not in space.prepare("--help").stderr


def test_bytecode_in_the_tree_is_not_read(space):
    """Bytecode that Python holds for that of the unchanged source: same size, same time."""
    source = space.root / "ratchet" / "commands" / "options.py"
    honest, state = source.read_bytes(), source.stat()
    padding = len(honest) - len(PLANTED.encode()) - 1
    source.write_text(PLANTED + "#" * padding + "\n")
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))
    py_compile.compile(str(source), doraise=True)
    source.write_bytes(honest)
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert MARK not in said(space)


def test_an_extension_module_in_the_tree_is_not_loaded(space):
    """It comes before the source of its name where Python looks in folders."""
    for suffix in (importlib.machinery.EXTENSION_SUFFIXES[0], ".so", ".pyc"):
        (space.root / "ratchet" / "commands" / f"options{suffix}").write_bytes(b"no library at all")
        (space.root / "ratchet" / "exam" / "problem" / f"parity{suffix}").write_bytes(b"no library at all")
    said(space)


def test_a_variable_of_the_caller_brings_no_code(space, tmp_path):
    evil = tmp_path / "evil"
    evil.mkdir()
    for name in ("sitecustomize.py", "usercustomize.py", "ratchet.py", "json.py"):
        (evil / name).write_text(PLANTED)
    (evil / "shell").write_text(f"echo {MARK} >&2\n")
    ours = dict.fromkeys(("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONUSERBASE"), str(evil))
    shells = dict.fromkeys(("BASH_ENV", "ENV"), str(evil / "shell"))
    assert MARK not in said(space, **ours, **shells)


def test_a_shell_function_of_the_caller_is_not_called(space):
    assert MARK not in said(space, **{"BASH_FUNC_cd%%": f'() {{ echo {MARK} >&2; builtin cd "$@"; }}'})


def own_environment(space: Workspace) -> Path:
    """An environment in the tree that its author can edit: this one's packages, and a link to its interpreter."""
    venv = space.root / ".venv"
    venv.unlink()
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (venv / "lib").symlink_to(Path(sys.prefix) / "lib")
    (venv / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    shutil.copy(Path(sys.prefix) / "requirements.lock", venv)
    return venv


def test_what_the_environment_says_of_its_interpreter_is_not_read(space, tmp_path):
    """``home`` in pyvenv.cfg is where a Python that is started as ``.venv/bin/python`` takes its library from."""
    venv = own_environment(space)
    folder = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = space.root / "evil" / "lib" / folder
    library.mkdir(parents=True)
    for source in Path(os.__file__).parent.iterdir():
        (library / source.name).symlink_to(source)
    (library / "fnmatch.py").unlink()
    (library / "fnmatch.py").write_text(PLANTED + Path(os.__file__).with_name("fnmatch.py").read_text())
    (space.root / "evil" / "bin").mkdir()
    (venv / "pyvenv.cfg").write_text(f"home = {space.root / 'evil' / 'bin'}\n")
    command = [str(venv / "bin" / "python"), "-I", "-S", "-c", "import fnmatch"]
    assert MARK in subprocess.run(command, check=True, capture_output=True, text=True).stderr, "it would be read"
    assert MARK not in said(space)
    # `python prepare.py` starts as that Python does, and goes on as the other.
    done = space.call(os.path.realpath(sys.executable), "-I", str(space.root / "prepare.py"), "--help")
    assert MARK not in done.stderr


@pytest.mark.parametrize("script", ["ratchet.sh", "prepare.py"])
def test_an_interpreter_inside_the_tree_does_not_run(space, script):
    venv = own_environment(space)
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").write_text(f"#!/bin/sh\necho {MARK} >&2\n")
    (venv / "bin" / "python").chmod(0o755)
    before = [os.path.realpath(sys.executable), "-I"] if script == "prepare.py" else []
    done = space.call(*before, str(space.root / script), "log")
    assert done.returncode != 0
    assert MARK not in done.stderr
    assert "inside the repository" in done.stderr


def library_of(tmp_path: Path, monkeypatch) -> Path:
    """A standard library of this test's own."""
    folder = tmp_path / "lib" / "python3"
    (folder / "json").mkdir(parents=True)
    (folder / "os.py").write_text("")
    (folder / "json" / "decoder.py").write_text("value = 1\n")
    monkeypatch.setattr(installed.sysconfig, "get_path", lambda name: str(folder))
    return folder


@pytest.mark.parametrize("name", ["json/decoder.py", "json/new.py", "lib-dynload/_json.so", "os.pyc"])
def test_code_of_the_standard_library_counts(tmp_path, monkeypatch, name):
    folder = library_of(tmp_path, monkeypatch)
    before = installed.interpreter()
    assert installed.interpreter() == before
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("value = 2\n")
    assert installed.interpreter() != before


def test_the_program_that_is_the_interpreter_counts(tmp_path, monkeypatch):
    library_of(tmp_path, monkeypatch)
    before = installed.interpreter()
    (tmp_path / "python").write_text("another program")
    monkeypatch.setattr(installed.sys, "executable", str(tmp_path / "python"))
    assert installed.interpreter() != before


def test_where_python_is_and_what_distributors_leave_out_does_not_count(tmp_path, monkeypatch):
    folder = library_of(tmp_path, monkeypatch)
    before = installed.interpreter()
    for name in ("_sysconfigdata__linux.py", "config-3/python-config.py", "test/a.py", "site-packages/a.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("prefix = '/somewhere'\n")
    (folder / "json" / "__pycache__").mkdir()
    (folder / "json" / "__pycache__" / "decoder.cpython-311.pyc").write_text("")
    assert installed.interpreter() == before
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(folder, elsewhere)
    monkeypatch.setattr(installed.sysconfig, "get_path", lambda name: str(elsewhere))
    assert installed.interpreter() == before


def test_what_earlier_looks_saw_is_not_kept_for_ever(tmp_path):
    for number in range(12):
        folder = tmp_path / f"environment{number}"
        folder.mkdir()
        (folder / "code.py").write_text("")
        installed.digest(folder)
    assert len(list((tmp_path / "private").glob("installed-*.json"))) == 8


def test_compiled_code_of_the_environments_used_last_stays(tmp_path, monkeypatch):
    private = tmp_path / "private"
    monkeypatch.setattr(bytecode, "private_folder", lambda: private)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: Path(bytecode.folders()[0]).mkdir())
    for place in range(bytecode.ENVIRONMENTS + 1):
        folder = private / f"bytecode-{place}"
        folder.mkdir()
        (folder / "code.pyc").touch()
        os.utime(folder, (place, place))
    bytecode.fill.__wrapped__(("/no/such/packages",))
    own = Path(bytecode.folders()[0]).name
    assert {path.name for path in private.iterdir()} == {
        own,
        *(f"bytecode-{n}" for n in range(2, bytecode.ENVIRONMENTS + 1)),
    }


def environment_of(tmp_path: Path) -> Path:
    """A folder of installed packages with one package."""
    folder = tmp_path / "site-packages"
    (folder / "one").mkdir(parents=True)
    (folder / "one" / "code.py").write_text("value = 1\n")
    record = folder / "one-1.dist-info"
    record.mkdir()
    digest = "sha256=WFyTZm_LBGt7Jk0_pzICqio4JUroKks7oZ6HPC1amIY"
    (record / "RECORD").write_text(f"one/code.py,{digest},10\none-1.dist-info/RECORD,,\n../../bin/one,{digest},9\n")
    return folder


@pytest.fixture(autouse=True)
def _private(monkeypatch, tmp_path):
    """A private folder of this test's own, where this process looks for it."""
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    for module in (installed, sources):
        monkeypatch.setattr(module, "private_folder", lambda: folder)


@pytest.mark.parametrize("name", ["one/code.py", "two.py", "evil.pth", "one/code.cpython-311-x86_64-linux-gnu.so"])
def test_what_is_planted_in_the_environment_changes_its_digest(tmp_path, name):
    folder = environment_of(tmp_path)
    before = installed.digest(folder)
    assert installed.digest(folder) == before
    (folder / name).write_text("value = 2\n")
    assert installed.digest(folder) != before


def test_an_edit_that_keeps_size_and_time_changes_the_digest(tmp_path):
    folder = environment_of(tmp_path)
    file = folder / "one" / "code.py"
    state, before = file.stat(), installed.digest(folder)
    file.write_text("value = 2\n")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert file.stat().st_size == state.st_size
    assert installed.digest(folder) != before


def test_what_depends_on_the_machine_leaves_the_digest(tmp_path):
    folder = environment_of(tmp_path)
    before = installed.digest(folder)
    (folder / "one" / "__pycache__").mkdir()
    (folder / "one" / "__pycache__" / "code.cpython-311.pyc").write_text("")
    (folder / "one-1.dist-info" / "INSTALLER").write_text("uv")
    record = folder / "one-1.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("../../bin/one,sha256=x", "../../bin/one,sha256=y"))
    assert installed.digest(folder) == before


def test_a_served_package_has_no_other_modules(tmp_path):
    (tmp_path / "ratchet").mkdir()
    (tmp_path / "ratchet" / "__init__.py").write_text("")
    (tmp_path / "ratchet" / "one.py").write_text("value = 1\n")
    read = sources.read(tmp_path)
    (tmp_path / "ratchet" / "one.py").write_text("value = 2\n")
    (tmp_path / "ratchet" / "two.py").write_text("")
    server = sources.Server(read.compiled())
    spec = server.find_spec("ratchet.one")
    assert spec is not None
    namespace = {}
    exec(server.get_code("ratchet.one"), namespace)
    assert namespace["value"] == 1, "what was read first"
    with pytest.raises(ModuleNotFoundError, match=r"ratchet\.two is no module of the judge's sources"):
        server.find_spec("ratchet.two")
    assert server.find_spec("numpy") is None


def test_a_link_is_no_source(tmp_path):
    (tmp_path / "ratchet").mkdir()
    (tmp_path / "ratchet" / "one.py").symlink_to("/etc/passwd")
    assert not sources.read(tmp_path).files


def test_compiled_code_is_kept_and_a_damaged_file_is_made_again(tmp_path):
    (tmp_path / "ratchet").mkdir()
    (tmp_path / "ratchet" / "one.py").write_text("value = 1\n")
    made = sources.read(tmp_path).compiled()
    (kept,) = (tmp_path / "private").glob("code-*")
    assert sources.read(tmp_path).compiled() == made
    kept.write_bytes(b"")
    assert sources.read(tmp_path).compiled() == made


def test_compiled_code_of_the_same_files_elsewhere_is_used(tmp_path, monkeypatch):
    source = "def outer():\n    return [here() for here in (lambda: 1 / 0,)]\n"
    for root in ("first", "second", "other"):
        (tmp_path / root / "ratchet").mkdir(parents=True)
        (tmp_path / root / "ratchet" / "one.py").write_text(source + "value = 1\n" * (root == "other"))
    first = sources.read(tmp_path / "first").compiled()
    with monkeypatch.context() as patched:
        patched.setattr("builtins.compile", None)
        second = sources.read(tmp_path / "second").compiled()
        assert sources.read(tmp_path / "first").compiled() == first
        with pytest.raises(TypeError):
            sources.read(tmp_path / "other").compiled()
    assert second["ratchet.one"][1] == str(tmp_path / "second" / "ratchet" / "one.py")
    namespace = {}
    exec(sources.Server(second).get_code("ratchet.one"), namespace)
    with pytest.raises(ZeroDivisionError) as raised:
        namespace["outer"]()
    places = {frame.filename for frame in traceback.extract_tb(raised.tb)[1:]}
    assert places == {second["ratchet.one"][1]}, "every function says which file it is of"


def test_start_runs_in_an_isolated_python_only(clean):
    start = str(clean.root / home.START.relative_to(home.PACKAGE_ROOT))
    done = subprocess.run([sys.executable, start, "ratchet", "log"], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "python -I -S" in done.stderr


@pytest.mark.parametrize("name", ["sitecustomize.py", "json.py", "jax.py", "numpy.py", "ratchet.py"])
def test_a_kernel_file_named_like_a_module_is_refused(space, name):
    shutil.copy(space.root / "kernel.py", space.root / name)
    done = space.ratchet("an idea", "--kernel", name)
    assert done.returncode == Status.USAGE.exit_code
    assert f"{name} would shadow a module of that name" in done.stderr
    assert not space.ledger.exists()


def test_a_digest_is_that_of_an_earlier_look_where_nothing_changed(tmp_path, monkeypatch):
    folder = environment_of(tmp_path)
    before, read = installed.digest(folder), installed._read
    monkeypatch.setattr(installed, "_read", lambda *_: "0" * 64)
    assert installed.digest(folder) == before
    record = folder / "one-1.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("one/code.py,sha256=W", "one/code.py,sha256=V"))
    assert installed.digest(folder) == "0" * 64
    monkeypatch.setattr(installed, "_read", read)
    (folder / "two.py").write_text("")
    assert installed.digest(folder) not in (before, "0" * 64)
    for file in (tmp_path / "private").glob("*.seen"):
        file.write_bytes(b"no digest \xff")
    (folder / "two.py").unlink()
    record.write_text(record.read_text().replace("one/code.py,sha256=V", "one/code.py,sha256=W"))
    assert installed.digest(folder) == before


def test_packages_are_compiled_and_read_for_a_new_environment(monkeypatch):
    done = []
    monkeypatch.setattr(bytecode, "fill", done.append)
    monkeypatch.setattr(installed, "digest", lambda folder: done.append(str(folder)))
    assert installed.prewarm() == 0
    assert done == [children.packages(), *children.packages()]


def test_set_up_runs_it_by_the_judges_start(monkeypatch):
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    bootstrap.prewarm(HERE / ".venv")
    ((python, *flags, start, entry),) = ran
    assert Path(python) == (HERE / ".venv" / "bin" / "python").resolve()
    assert (flags, start, entry) == (["-I", "-S"], str(home.START), "prewarm")


def test_the_start_knows_it():
    python = Path(sys.executable).resolve()
    start = home.START
    done = subprocess.run([python, "-I", "-S", start, "prewarm"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert bytecode._mark(children.packages()).exists()


LEAVES = """
import atexit, sys, threading
from ratchet.process.boot import start
atexit.register(print, "done at its end")
print("said")
{}
start.leave(3)
print("it went on")
"""


def left(before: str = "", **settings: object) -> subprocess.CompletedProcess[str]:
    """A process that leaves, ``before`` which it does something."""
    command = [sys.executable, "-c", LEAVES.format(before)]
    return subprocess.run(command, cwd=HERE, text=True, timeout=60, check=False, **settings)


def test_a_process_leaves_with_everything_said_and_done():
    done = left(capture_output=True)
    assert (done.returncode, done.stdout) == (3, "said\ndone at its end\n")


@pytest.mark.parametrize(
    "before",
    [
        "threading.Thread(target=lambda: threading.Event().wait(1)).start()",
        "sys.stdout.close(); sys.stdout = sys.stderr",
    ],
    ids=["a thread", "output that is closed"],
)
def test_it_ends_as_any_other_where_something_is_left(before):
    done = left(before, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert "said\n" in done.stdout
    assert ("it went on" in done.stdout) == ("Thread" in before)


def test_what_cannot_be_written_is_for_the_end_to_say():
    with open("/dev/full", "w") as full:
        done = left(stdout=full, stderr=subprocess.PIPE)
    assert done.returncode not in (0, 3)
    assert "No space left" in done.stderr
