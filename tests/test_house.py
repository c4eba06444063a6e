"""The rules of the house, read from the imports and from the text of all tracked files."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.imports import HERE, MODULES, circles, closure, importers

FOUNDATION = ("ratchet.values", "ratchet.chips", "ratchet.scalar", "ratchet.protos")
ABOVE = (
    "ratchet.loop",
    "ratchet.view",
    "ratchet.cli",
    "ratchet.library",
    "ratchet.pytest_plugin",
    "ratchet.wiring",
    "ratchet.options",
    "ratchet.search",
    "ratchet.agents",
    "ratchet.report",
    "prepare",
)
ROOMS = ("account", "candidate", "compiler", "dump", "judge", "machine", "measure", "mosaic")
"""What judges, above the foundation."""
COMMAND_LINE = {
    "ratchet.agents.history",
    "ratchet.agents.server",
    "ratchet.commands.agent",
    "ratchet.cli",
    "ratchet.commands.across",
    "ratchet.commands.ci",
    "ratchet.commands.diff",
    "ratchet.commands.doctor",
    "ratchet.commands.explain",
    "ratchet.commands.fit",
    "ratchet.commands.history",
    "ratchet.commands.judge",
    "ratchet.commands.ablate",
    "ratchet.commands.branches",
    "ratchet.commands.merge",
    "ratchet.commands.advise",
    "ratchet.commands.brief",
    "ratchet.commands.search",
    "ratchet.commands.try_",
    "ratchet.commands.plot",
    "ratchet.commands.report",
    "ratchet.commands.selftest",
    "ratchet.commands.sweep",
    "ratchet.commands.tune",
    "ratchet.commands.upgrade_check",
    "ratchet.library",
    "ratchet.pytest_plugin",
    "ratchet.report.charts",
    "ratchet.report.document",
    "ratchet.report.gallery",
    "ratchet.report.page",
    "ratchet.report.story",
    "ratchet.report.tables",
    "ratchet.report.trace",
    "ratchet.report.words",
    "ratchet.wiring",
}
PURE = (
    "ratchet.advise.advice",
    "ratchet.advise.advise",
    "ratchet.advise.predict",
    "ratchet.advise.syntax",
    "ratchet.fit",
    "ratchet.report.charts",
    "ratchet.report.document",
    "ratchet.report.files",
    "ratchet.report.palette",
    "ratchet.report.story",
    "ratchet.report.words",
    "ratchet.knobs",
    "ratchet.mutation",
    "ratchet.search.constraint",
    "ratchet.search.overflow",
    "ratchet.search.propose",
    "ratchet.search.space",
    "ratchet.search.stop",
    "ratchet.search.tried",
    "ratchet.loop.chain",
    "ratchet.loop.decide",
    "ratchet.loop.compare",
    "ratchet.measure.stats",
    "ratchet.scalar",
    "ratchet.tune",
    "ratchet.tune_tables",
    "ratchet.judge.roofline",
    "ratchet.judge.parity",
    "ratchet.dump.listing",
    "ratchet.dump.operands",
    "ratchet.dump.comments",
    "ratchet.dump.outline",
    "ratchet.dump.hlo",
    "ratchet.dump.copies",
)
NOT_PURE = ("os", "sys", "time", "datetime", "random", "secrets", "subprocess", "pathlib", "tempfile", "socket")


def test_the_package_is_read():
    assert len(MODULES) > 40
    assert "ratchet.judge.parity" in MODULES
    assert "ratchet.judge.parity" in MODULES["ratchet.judge.values_worker"].imports


def test_no_module_imports_what_imports_it():
    """Wherever the statement is: late imports and those for type checkers count too."""
    assert circles() == []


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith(FOUNDATION)])
def test_the_foundation_imports_no_room(name):
    ours = {one for one in MODULES[name].imports if one.split(".")[0] in ("ratchet", "prepare")}
    assert all(one.startswith(FOUNDATION) for one in ours), ours


@pytest.mark.parametrize("room", ROOMS)
def test_what_judges_knows_nothing_of_the_loop(room):
    inside = {name for name in MODULES if name.startswith(f"ratchet.{room}")}
    assert not inside & importers(*ABOVE)


def test_only_the_command_line_imports_the_view():
    outside = {name for name in importers("ratchet.view") if not name.startswith("ratchet.view")}
    assert outside == COMMAND_LINE


def test_the_view_imports_the_foundation_alone():
    inside = {name for name in MODULES if name.startswith("ratchet.view")}
    assert not inside & importers("prepare", *(f"ratchet.{room}" for room in (*ROOMS, "cli", "loop", "wiring")))


def test_the_loop_imports_no_room_that_judges_except_the_candidates():
    inside = {name for name in MODULES if name.startswith("ratchet.loop")}
    assert not inside & importers("ratchet.view", *(f"ratchet.{room}" for room in ROOMS if room != "candidate"))


def test_nothing_imports_the_command_line():
    assert importers("ratchet.cli") == {"ratchet.__main__"}


def test_only_the_package_itself_imports_the_library():
    assert importers("ratchet.library") == {"ratchet"}


@pytest.mark.parametrize("name", PURE)
def test_what_is_pure_reads_no_clock_and_no_file(name):
    assert not {one.split(".")[0] for one in MODULES[name].imports} & set(NOT_PURE)
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
        ("jaxlib._hlo", {"ratchet.compiler.inside"}),
        ("google.protobuf", {"ratchet.protos"}),
        ("jaxlib.mlir", {"ratchet.mosaic.bindings", "ratchet.candidate.target_worker"}),
        ("jax._src", {"ratchet.mosaic.bindings", "ratchet.candidate.lines"}),
        ("ctypes", {"ratchet.jail.system", "ratchet.jail.landlock", "ratchet.jail.seccomp"}),
        ("filelock", {"ratchet.loop.workspace"}),
        ("mcp", {"ratchet.agents.server"}),
        ("pandas", {"ratchet.loop.table"}),
        ("optuna", {"ratchet.search.tpe"}),
        ("altair", {"ratchet.report.charts"}),
        ("jinja2", {"ratchet.report.page"}),
        ("ray", {"ratchet.search.cluster"}),
    ],
)
def test_an_awkward_dependency_has_one_importer(awkward, importer):
    assert importers(awkward) == importer


def test_jax_is_only_in_processes_of_its_own():
    """The process that decides imports no JAX: it starts quickly, and nothing in it can be patched by a kernel."""
    reached = closure("ratchet.__main__", "prepare", without="")
    assert "ratchet.judge.correctness" in reached
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
        "ratchet.candidate.worker",
        "ratchet.candidate.target_worker",  # imports a function of the user's
        "ratchet.candidate.generated",  # imports the reference of one, in the candidate's worker
        "ratchet.candidate.tree",  # compiles the files that it is in
        "ratchet.machine.translate",  # makes Python of the programs that it translated itself
        "ratchet.shortlist",  # imports a function of the user's, in the user's own process
        "ratchet.sources",  # compiles the judge's own modules
        "ratchet.served",  # runs them
        "ratchet.jail.launcher",  # runs a child's own module
        "ratchet.forking",  # imports those of the judge's children
        "ratchet.start",  # runs the three of them that serve the others
    }
    started = ("ratchet.candidate.worker", "ratchet.candidate.target_worker")
    assert importers(*started) == set(), "they are started as processes and never imported"


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HERE, check=True, capture_output=True).stdout
    return [HERE / name for name in listed.decode().split("\0") if name and (HERE / name).is_file()]


PLACES = re.compile(
    r"/(?:home|root|Users|work|workspace|mnt|private)/[A-Za-z0-9_.-]+"  # a path of somebody's machine
    r"|https?://[^\s\"'<>]*(?:pypi|artifactory|nexus|devpi|simple/)[^\s\"'<>]*"  # where packages came from
    r"|--(?:extra-)?index-url|--find-links|localhost:\d+/simple"
)


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
    assert found == {"ratchet/compiler/environment.py"}


def test_packaged_rooms_are_those_that_exist():
    rooms = {".".join(path.parent.relative_to(HERE).parts) for path in (HERE / "ratchet").rglob("__init__.py")}
    rooms |= {"pallas_flash", "pallas_flash.kernels"}
    listed = set(re.search(r"^packages = \[(.*)\]", (HERE / "pyproject.toml").read_text(), re.MULTILINE)[1].split(", "))
    assert {name.strip('"') for name in listed} == rooms
