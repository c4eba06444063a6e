"""The tool as a wheel leaves it: no packages around it, a repository that is not its own."""

import ast
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ratchet.commands import uninstall
from ratchet.exam.judge.seal import seal
from ratchet.launch import NO_ENVIRONMENT
from ratchet.process.boot import home
from ratchet.values.status import Status
from tests.workspaces import HERE

RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ratchet.launch import main; sys.exit(main())"
BARE = [Path(sys.base_prefix, "bin", "python3"), "-I", "-S", "-B"]
"""A Python that sees no installed package."""


def shipped():
    """What ``setup.py`` puts beside the package."""
    tree = ast.parse((HERE / "setup.py").read_text())
    values = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "SHIPPED"]
    return [file for pattern in ast.literal_eval(values[0]) for file in sorted(HERE.glob(pattern))]


@dataclass
class Site:
    """A folder of installed packages."""

    root: Path

    def ratchet(self, *arguments, folder, **environment):
        return subprocess.run(
            [*BARE, "-c", RUN, self.root, *arguments],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.root), **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("installed") / "site packages"
    shutil.copytree(HERE / "ratchet", root / "ratchet", ignore=shutil.ignore_patterns("__pycache__"))
    for file in shipped():
        target = root / "pallas_ratchet" / file.relative_to(HERE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    return Site(root=root)


def test_a_workspace_is_laid_out_and_never_overwritten(site, tmp_path):
    folder = tmp_path / "my kernels"
    first = site.ratchet("init", folder, folder=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert set(files) == {"kernel.py", "program.md", "AGENTS.md", ".gitignore", ".gitattributes"}
    assert files["kernel.py"] == (HERE / "examples" / "first.py").read_bytes()
    assert b"./ratchet.sh" not in files["program.md"]
    assert b"prepare.py" not in files["program.md"]
    (folder / "kernel.py").write_text("mine")
    (folder / ".gitattributes").write_text("results.tsv -text\n")
    again = site.ratchet("init", "--from", "matmul", folder=folder)
    assert again.returncode == 0
    assert "left kernel.py alone" in again.stdout
    assert "left .gitattributes alone: it is there already; it lacks *.lock.json -text\n" in again.stdout
    assert (folder / "kernel.py").read_text() == "mine"


def test_a_workspace_in_a_folder_of_a_repository(site, tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    done = site.ratchet("init", "--from", "rope", "kernels/rope", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "kernels" / "rope" / ".git").exists()
    assert (tmp_path / "kernels" / "rope" / "kernel.py").is_file()
    assert (tmp_path / ".gitignore").is_file()


def test_in_a_repository_only_what_was_written_is_to_be_committed(site, tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("/.venv\n")
    done = site.ratchet("init", "my kernels", folder=tmp_path)
    assert (
        "  git add kernel.py program.md AGENTS.md skills/pallas-ratchet/SKILL.md ../.gitattributes && " in done.stdout
    )
    again = site.ratchet("init", "my kernels", folder=tmp_path)
    assert "git add" not in again.stdout


@pytest.mark.parametrize(
    ("folder", "status"),
    [
        ("a file", Status.USAGE),
        ("a file/below", Status.USAGE),
        ("bare.git", Status.NOT_A_REPOSITORY),
        ("a tree/.git", Status.NOT_A_REPOSITORY),
    ],
)
def test_where_no_workspace_can_be_is_said(site, tmp_path, folder, status):
    (tmp_path / "a file").write_text("mine")
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bare.git"], check=True)
    subprocess.run(["git", "init", "-q", tmp_path / "a tree"], check=True)
    done = site.ratchet("init", folder, folder=tmp_path)
    assert (done.returncode, done.stdout) == (status.exit_code, "")
    assert done.stderr.startswith(f"{status.name}: ")
    assert not (tmp_path / folder / "kernel.py").exists()


def test_an_example_that_is_not_there(site, tmp_path):
    done = site.ratchet("init", "--from", "../kernel", folder=tmp_path)
    assert done.returncode == Status.NOT_FOUND.exit_code
    assert "wanted one of" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_an_environment_it_is_said_how_to_make_one(site, tmp_path):
    done = site.ratchet("log", folder=tmp_path, RATCHET_ENVIRONMENT=str(tmp_path / "none"))
    assert done.returncode == NO_ENVIRONMENT
    assert "`ratchet setup` makes it" in done.stderr


def test_set_up_says_where_the_environment_is(site, tmp_path):
    done = site.ratchet("setup", folder=tmp_path, RATCHET_ENVIRONMENT=sys.prefix)
    assert (done.returncode, done.stdout) == (0, f"the judge's environment is {sys.prefix}\n")


def test_the_judge_works_in_the_repository_of_the_working_directory(site, tmp_path):
    outside = site.ratchet("log", folder=tmp_path, RATCHET_ENVIRONMENT=sys.prefix)
    assert outside.returncode == Status.NOT_A_REPOSITORY.exit_code
    assert "`ratchet init` makes one" in outside.stderr
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "a folder").mkdir()
    inside = site.ratchet("log", folder=tmp_path / "a folder", RATCHET_ENVIRONMENT=sys.prefix)
    assert (inside.returncode, inside.stdout) == (0, "The ledger has no such rows yet.\n")


def test_a_file_of_the_authors_is_no_module_of_the_judge(site, tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in ("numpy.py", "prepare.py", "ratchet.py", "git.py", "sitecustomize.py"):
        (tmp_path / name).write_text("print('PLANTED')\n")
    done = site.ratchet("log", folder=tmp_path, RATCHET_ENVIRONMENT=sys.prefix, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "The ledger has no such rows yet.\n")


def test_the_seal_is_that_of_a_clone(site):
    ask = "import sys; sys.path.insert(0, sys.argv[1]); from ratchet.exam.judge import seal; "
    ask += "from ratchet.process.boot import home; print(home.INSTALLED, seal.seal(home.PACKAGE_ROOT))"
    command = [sys.executable, "-B", "-P", "-c", ask, site.root]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout == f"True {seal(HERE)}\n"


def test_both_ways_in_let_the_same_variables_through():
    text = (HERE / "environment.sh").read_text().replace("\\\n", " ")
    (names,) = re.findall(r"^for name in ([A-Z_ ]+);", text, re.MULTILINE)
    assert names.split() == home.VARIABLES
    given = {"PATH": "/bin", "PYTHONPATH": "x", "LD_PRELOAD": "y", "LD_LIBRARY_PATH": "z"}
    assert home.judges_environment(given, Path("/e")) == {
        "PATH": "/bin",
        "RATCHET_LIBRARY_PATH": "z",
        "RATCHET_ENVIRONMENT": "/e",
    }


def test_what_it_made_is_listed_and_then_removed(site, tmp_path):
    caches = tmp_path / "my caches"
    own = caches / "pallas-ratchet"
    environment = own / "environments" / "0123456789abcdef"
    environment.mkdir(parents=True)
    own.chmod(0o700)
    (environment / "package.py").write_text("x" * 2_000_000)
    (own / "code-1").mkdir()
    (own / "code-1" / "a.pyc").write_text("x" * 1_000_000)
    outside = tmp_path / "outside"
    outside.mkdir()
    (own / "code-1" / "link").symlink_to(outside)
    (outside / "mine").write_text("mine")
    listed = site.ratchet("uninstall", folder=tmp_path, XDG_CACHE_HOME=str(caches))
    assert listed.returncode == 0, listed.stderr
    assert f"would remove {environment} (an environment, 2.0 MB)" in listed.stdout
    assert f"would remove {own} (compiled code and what is remembered of installed packages, 1.0 MB)" in listed.stdout
    assert "`ratchet uninstall --yes` removes it" in listed.stdout
    assert (environment / "package.py").exists()
    done = site.ratchet("uninstall", "--yes", folder=tmp_path, XDG_CACHE_HOME=str(caches))
    assert (done.returncode, done.stderr) == (0, "")
    assert not own.exists()
    assert (outside / "mine").read_text() == "mine"
    assert "left: results.tsv, hlo_dumps/" in done.stdout


def test_only_an_environment_is_removed_where_one_is_named(site, tmp_path):
    """A clone has the lock, too."""
    named, caches = tmp_path / "named", tmp_path / "caches"
    named.mkdir()
    for name in ("requirements.lock", "mine"):
        (named / name).write_text("x")
    where = {"folder": tmp_path, "XDG_CACHE_HOME": str(caches), "RATCHET_ENVIRONMENT": str(named)}
    done = site.ratchet("uninstall", "--yes", **where)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(named) not in done.stdout
    assert (named / "mine").exists()
    (named / "pyvenv.cfg").write_text("x")
    assert f"removing {named} (the judge's environment" in site.ratchet("uninstall", "--yes", **where).stdout
    assert not named.exists()


def test_a_clone_keeps_its_environment(tmp_path, monkeypatch):
    clone = tmp_path / "clone"
    (clone / ".venv").mkdir(parents=True)
    for name in ("requirements.lock", "pyvenv.cfg"):
        (clone / ".venv" / name).write_text("x")
    monkeypatch.setattr(home, "PACKAGE_ROOT", clone)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert list(uninstall.made()) == []


def test_the_private_folder_is_where_caches_are_but_in_no_repository(site, tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path / "a tree"], check=True)
    for name, used in (("caches", True), ("a tree/caches", False), ("", False)):
        where = str(tmp_path / name) if name else "relative"
        done = site.ratchet("uninstall", folder=tmp_path, XDG_CACHE_HOME=where)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name / "pallas-ratchet").is_dir() is used or not name
        assert not (tmp_path / "relative").exists()


def test_a_working_directory_that_was_removed_is_said_in_a_line(site, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); " + RUN
    done = subprocess.run(
        [*BARE, "-c", code, site.root, "log"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == Status.NOT_FOUND.exit_code
    (line,) = done.stderr.splitlines()
    assert line.startswith("NOT_FOUND: the working directory cannot be used (No such file or directory): `cd` into")


def test_a_bare_repository_is_said_to_be_one(site, tmp_path):
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bare.git"], check=True)
    done = site.ratchet("status", folder=tmp_path / "bare.git" / "refs", RATCHET_ENVIRONMENT=sys.prefix)
    assert done.returncode == Status.NOT_A_REPOSITORY.exit_code
    assert f"{tmp_path / 'bare.git'} is a bare repository, without files: work in a clone of it" in done.stderr
