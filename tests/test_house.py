"""The rules of the house, read from the imports and from the text of all tracked files."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from ratchet.exam.judge import seal
from tests.imports import HERE, MODULES, circles, closure, importers, needs

STOREYS = ("values", "process", "tpu", "exam")
"""From the ground up; whatever is in no folder of these is on top of them."""
NOT_PURE = ("os", "sys", "time", "datetime", "random", "secrets", "subprocess", "tempfile", "socket")


def storey(name: str) -> int:
    room = name.split(".")[1:2]
    return STOREYS.index(room[0]) if room and room[0] in STOREYS else len(STOREYS)


def is_pure(name: str) -> bool:
    """Whether a module says of itself that it is."""
    return bool(re.search(r"\bPure\b(?!, except)", ast.get_docstring(MODULES[name].tree) or ""))


def test_the_package_is_read():
    assert len(MODULES) > 40
    assert "ratchet.exam.problem.parity" in MODULES
    assert "ratchet.exam.problem.parity" in MODULES["ratchet.exam.judge.comparison"].imports


def test_no_module_imports_what_imports_it():
    """Wherever the statement is: late imports and those for type checkers count too."""
    assert circles() == []


def test_imports_go_down_only():
    upward = [(name, one) for name in MODULES for one in needs(name) if storey(one) > storey(name)]
    assert upward == []


def test_values_import_no_other_room():
    beyond = [(name, one) for name in MODULES for one in needs(name) if storey(name) == 0 < storey(one)]
    assert beyond == []


def test_the_seal_is_the_storeys_below_the_top():
    assert sorted(seal.ROOMS) == sorted(STOREYS)


def test_few_modules_are_in_no_room():
    assert len([path for path in (HERE / "ratchet").glob("*.py")]) <= 8


def test_the_architecture_names_every_room_and_only_files_that_are_there():
    text = (HERE / "docs" / "architecture.md").read_text()
    package = HERE / "ratchet"
    tops = {path.parent for path in package.glob("*/__init__.py")}
    split = {path for path in tops if path.name in STOREYS and path.name != "values"}
    rooms = (tops - split) | {path.parent for storey in split for path in storey.glob("*/__init__.py")}
    named = re.findall(r"^\|[^|]*\| `([a-z_/]+)/` \|", text, re.MULTILINE)
    assert sorted(named) == sorted(str(room.relative_to(package)) for room in rooms)
    tracked_names = [f"/{path.relative_to(HERE)}" for path in tracked()]
    files = set(re.findall(r"`([a-z_/]+\.(?:py|json))`", text))
    assert [name for name in sorted(files) if not any(one.endswith(f"/{name}") for one in tracked_names)] == []


@pytest.mark.parametrize("name", [name for name in MODULES if is_pure(name)])
def test_what_is_pure_reads_no_clock_and_no_file(name):
    imports = MODULES[name].imports
    assert not {one.split(".")[0] for one in imports} & set(NOT_PURE)
    assert "pathlib.Path" not in imports, "a path that is only a name is a PurePath"
    calls = {
        node.func.id
        for node in ast.walk(MODULES[name].tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "input", "print"}


@pytest.mark.parametrize(
    ("awkward", "importer"),
    [
        ("git", {"ratchet.loop.plumbing"}),
        ("jaxlib._hlo", {"ratchet.tpu.mlir.bindings"}),
        ("jaxlib._profiler", {"ratchet.tpu.mlir.bindings"}),
        ("google.protobuf", {"ratchet.tpu.protos"}),
        ("jaxlib.mlir", {"ratchet.tpu.mlir.bindings", "ratchet.tpu.exporting"}),
        ("jax._src", {"ratchet.tpu.mlir.bindings", "ratchet.tpu.exporting", "ratchet.exam.problem.jaxpr_file"}),
        (
            "ctypes",
            {"ratchet.process.sandbox.system", "ratchet.process.sandbox.landlock", "ratchet.process.sandbox.seccomp"},
        ),
        ("mcp", {"ratchet.agents.server"}),
        ("pandas", {"ratchet.loop.table"}),
        ("optuna", {"ratchet.search.tpe"}),
        ("altair", {"ratchet.report.charts", "ratchet.report.drawing"}),
        ("jinja2", {"ratchet.report.page"}),
        ("ray", {"ratchet.search.cluster"}),
    ],
)
def test_an_awkward_dependency_has_one_importer(awkward, importer):
    assert importers(awkward) == importer


def test_jax_is_only_in_processes_of_its_own():
    """The process that decides imports no JAX: it starts quickly, and nothing in it can be patched by a kernel."""
    commands = [name for name in MODULES if name.startswith("ratchet.commands.")]  # imported by name
    reached = closure("ratchet.__main__", "prepare", *commands, without="")
    assert "ratchet.exam.judge.correctness" in reached
    assert not reached & importers("jax", "jaxlib")


def test_only_the_candidates_workers_execute_a_kernel_file():
    def executes(tree):
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        return names & {"exec", "eval", "compile", "__import__"} or any(
            isinstance(node, ast.Attribute) and node.attr in ("exec_module", "run_path", "run_module", "import_module")
            for node in ast.walk(tree)
        )

    executing = {name for name, module in MODULES.items() if name.startswith("ratchet") and executes(module.tree)}
    assert executing == {
        "ratchet.exam.candidate.worker",
        "ratchet.exam.candidate.target_worker",  # imports a function of the user's
        "ratchet.exam.candidate.generated",  # imports the reference of one, in the candidate's worker
        "ratchet.exam.candidate.user_code",  # compiles the files of a user's that it finds
        "ratchet.tpu.machine.translate",  # makes Python of the programs that it translated itself
        "ratchet.tpu.machine.tile_code",  # likewise, of bundles of the SparseCores
        "ratchet.tune.shortlist",  # imports a function of the user's, in the user's own process
        "ratchet.commands.options",  # imports the command that is asked for
        "ratchet.process.boot.sources",  # compiles the judge's own modules, and runs them
        "ratchet.process.sandbox.inside",  # runs a child's own module
        "ratchet.process.sandbox.forking",  # imports those of the judge's children
        "ratchet.process.boot.start",  # runs the two of them that serve the others, and one beside
    }
    started = ("ratchet.exam.candidate.worker", "ratchet.exam.candidate.target_worker")
    assert importers(*started) == set(), "they are started as processes and never imported"


OPENER = "ratchet.process.root"
UNOPENED = re.compile(
    r"ratchet\.(process|tpu|selftest|upgrade|testing|exam\.measure)\..*"  # installed code, a child's folder, own trees
    r"|.*worker"  # in a child, behind its walls
    r"|ratchet\.exam\.candidate\.(generated|user_code)|ratchet\.exam\.problem\.array_file"  # there too
    r"|ratchet\.commands\.(environments|uninstall)"  # the private folder
    r"|ratchet\.tune\.shortlist"  # the user's own process
)
"""Modules that touch no work tree, no ``.git`` and no ``.ratchet``."""
PATH_CALLS = frozenset(
    "read_bytes read_text write_bytes write_text iterdir glob rglob mkdir touch rmdir is_dir is_symlink symlink_to "
    "hardlink_to chmod".split()
)
BARE_CALLS = frozenset("exists is_file unlink stat lstat".split())
"""Methods of a path. Those of the opener that have these names take the file as an argument."""
OS_CALLS = frozenset(
    "open listdir scandir walk mkdir makedirs unlink remove rmdir rename replace link symlink truncate utime chmod "
    "chown mkfifo stat lstat".split()
)
CALLS_OF = {
    "os": OS_CALLS,
    "os.path": frozenset("exists lexists isfile isdir islink getsize".split()),
    "shutil": frozenset("rmtree copy copy2 copyfile copytree move".split()),
    "glob": frozenset({"glob", "iglob"}),
}


def touches_a_path(call: ast.Call) -> bool:
    """Whether a call opens, lists, changes or asks for a file by its path."""
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute):
        return False
    name, of, given = call.func.attr, ast.unparse(call.func.value), call.args
    if of in CALLS_OF:
        return name in CALLS_OF[of] and ast.unparse(call.args[0]) != "os.devnull"
    if name == "open":
        mode = ast.unparse(given[0]) if given else ""
        return bool(re.fullmatch("'[rwxa][bt+]*'", mode)) or not (given or call.keywords)
    if name in ("rename", "replace"):
        return len(given) == 1 and not call.keywords
    return name in PATH_CALLS or (name in BARE_CALLS and not given)


@pytest.mark.parametrize(
    "text",
    [
        *("open(x)", "x.open('w')", "(a / b).write_text(t)", "os.walk(x)", "x.exists()", "x.unlink(missing_ok=True)"),
        *("os.path.lexists(x)", "shutil.rmtree(x)", "x.rename(y)", "a.replace(b)", "x.glob('*')", "x.stat().st_size"),
    ],
)
def test_what_touches_a_path_is_recognised(text):
    assert any(touches_a_path(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))


def test_files_of_a_repository_are_reached_by_the_opener_alone():
    """It follows no link and never leaves its root: what somebody planted there leads the judge nowhere."""
    found = [
        f"{module}:{node.lineno}: {ast.unparse(node)[:60]}"
        for module in MODULES
        if module.startswith("ratchet.") and not UNOPENED.fullmatch(module)
        for node in ast.walk(MODULES[module].tree)
        if isinstance(node, ast.Call) and touches_a_path(node)
    ]
    assert found == []
    assert len(importers(OPENER, "ratchet.process.paths")) > 30


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HERE, check=True, capture_output=True).stdout
    return [HERE / name for name in listed.decode().split("\0") if name and (HERE / name).is_file()]


PLACES = re.compile(
    r"/(?:home|root|Users|work|workspace|mnt|private)/[A-Za-z0-9_.-]+"  # a path of somebody's machine
    r"|https?://[^\s\"'<>]*(?:pypi|artifactory|nexus|devpi|simple/)[^\s\"'<>]*"  # where packages came from
    r"|--(?:extra-)?index-url|--find-links|localhost:\d+/simple"
)


def test_syntax_trees_are_made_one_at_a_time():
    """CPython 3.11 fails where two threads make one at once."""
    files = [path for path in (HERE / "ratchet").rglob("*.py") if b"ast.parse(" in path.read_bytes()]
    names = {path.relative_to(HERE).as_posix() for path in files}
    assert names == {"ratchet/exam/candidate/contract.py", "ratchet/kernelfile/syntax.py"}


@pytest.mark.parametrize("kind", ["code", "others"])
def test_no_file_names_a_machine_or_a_package_host(kind):
    found = []
    for path in tracked():
        data = path.read_bytes()
        if (path.suffix in (".py", ".sh")) != (kind == "code") or b"\0" in data or path.name == Path(__file__).name:
            continue
        text = data.decode(errors="replace")
        found += [f"{path.relative_to(HERE)}: {match[0]}" for match in PLACES.finditer(text)]
    assert found == []


def test_one_place_says_what_a_compiler_process_has_around_it():
    names = ("LIBTPU_INIT_ARGS", "TPU_ACCELERATOR_TYPE", "ALLOW_MULTIPLE_LIBTPU_LOAD")
    sets = re.compile(rf"""["']?(?:{"|".join(names)})["']?\s*[:=\]]""")
    found = {
        str(path.relative_to(HERE))
        for path in tracked()
        if path.suffix in (".py", ".sh") and sets.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"ratchet/tpu/compiler/environment.py"}
