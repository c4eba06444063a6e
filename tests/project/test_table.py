"""What `[tool.ratchet]` says, and what is said of it where it is wrong."""

import os
import shutil
import sys

import pytest

from ratchet.project import table
from ratchet.values.status import Refusal, Status
from tests.project.projects import TABLE, made


@pytest.fixture
def root(tmp_path):
    return made(tmp_path / "a repository")


def test_a_project_is_read(root):
    project = table.read(root)
    assert str(project.kernel) == "pkg.kernels:twice"
    assert project.source == root / "src"
    assert project.editable == "src/pkg/kernels.py"
    assert [(case.name, case.chip) for case in project.cases] == [("small", "v5e"), ("large", "v6e")]
    assert project.max_slowdown == table.SLOWDOWN


def test_a_project_may_be_beside_the_list_of_ci(root):
    (root / "pyproject.toml").write_text(TABLE + '\n[[tool.ratchet.ci]]\ntarget = "pkg.kernels:twice"\n')
    assert str(table.read(root).kernel) == "pkg.kernels:twice"


@pytest.mark.parametrize("text", ["", "tool = 3\n", "[tool.other]\n", '[tool.ratchet]\nsource = "src"\n'])
def test_a_repository_without_a_kernel_in_its_table_has_no_project(root, text):
    (root / "pyproject.toml").write_text(text)
    assert table.read(root) is None


def test_a_repository_without_the_file_has_no_project(tmp_path):
    assert table.read(tmp_path) is None


@pytest.mark.parametrize(
    ("edit", "status", "said"),
    [
        (("reference =", "refference ="), Status.USAGE, "has refference"),
        (("reference =", "#"), Status.USAGE, "lacks reference"),
        (("kernel =", "kernal ="), Status.USAGE, "has kernal"),
        (("kernel =", "#"), Status.USAGE, "lacks kernel"),
        ((TABLE, "[tool]\nratchet = 3"), Status.USAGE, "ratchet is 3, wanted"),
        (("pkg.kernels:", "pkg.kernel:"), Status.NOT_FOUND, "in no file below"),
        (("pkg.kernels:twice", "jax.nn:relu"), Status.NOT_FOUND, "in no file below"),
        (('chip = "v6e"', 'chip = "v6"'), Status.USAGE, r"\[large\].*no chip"),
        (("f32[8,128]", "f32(8,128)"), Status.USAGE, "no array"),
        (("[tool.ratchet]", '[tool.ratchet]\neditable = "../x.py"'), Status.NOT_FOUND, "editable"),
        (("[tool.ratchet]", "[tool.ratchet]\nmax_slowdown = 2"), Status.USAGE, "max_slowdown is 2"),
        (("[tool.ratchet]", '[tool.ratchet]\ninclude = "x"'), Status.USAGE, "list of patterns"),
        (("[tool.ratchet]", "[tool.ratchet"), Status.USAGE, "no TOML"),
    ],
)
def test_what_is_wrong_is_said(root, edit, status, said):
    (root / "pyproject.toml").write_text(TABLE.replace(*edit, 1))
    with pytest.raises(Refusal, match=said) as refused:
        table.read(root)
    assert refused.value.status is status


def with_python(root, python):
    (root / "pyproject.toml").write_text(TABLE.replace("[tool.ratchet]", f'[tool.ratchet]\npython = "{python}"', 1))
    return table.read(root)


@pytest.fixture
def outside(tmp_path_factory):
    """A folder of the user's, in which nobody else writes, with a program that would be seen to run."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "python").write_text('#!/bin/sh\ntouch "$0.ran"\n')
    (folder / "python").chmod(0o755)
    return folder


def test_a_python_of_the_users_is_taken_and_not_run(root, outside):
    assert with_python(root, outside / "python").python == str(outside / "python")
    assert os.listdir(outside) == ["python"]


@pytest.mark.parametrize("how", ["file", "link", "folder", "back", "path", "shared"])
def test_a_python_that_a_repository_can_put_there_is_refused(root, outside, monkeypatch, how):
    """Whoever writes into the repository would run a program as the user, outside of every jail."""
    (root / "bin").mkdir()
    shutil.copy(outside / "python", root / "bin" / "python")
    given, said = "bin/python", "inside the repository"
    if how == "link":
        (root / "bin" / "python").unlink()
        (root / "bin" / "python").symlink_to(sys.executable)
    elif how == "folder":
        (outside / "bin").symlink_to(root / "bin")
        given = outside / "bin" / "python"
    elif how == "back":
        (outside / "back").symlink_to(root / "bin" / "python")
        given = outside / "back"
    elif how == "path":
        monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
        given = "python"
    elif how == "shared":
        outside.chmod(0o1777)
        given, said = outside / "python", "everybody can write"
    with pytest.raises(Refusal, match=said) as refused:
        with_python(root, given)
    assert refused.value.status is Status.USAGE
    assert not [path for path in (*root.rglob("*.ran"), *outside.rglob("*.ran"))]


def test_a_python_that_is_not_there_is_said(root):
    with pytest.raises(Refusal, match="there is no /nowhere/python") as refused:
        with_python(root, "/nowhere/python")
    assert refused.value.status is Status.NOT_FOUND


@pytest.mark.parametrize("share", ["nan", "inf", "-inf", "-0.1", "0.51", "0.99", "1e300", "true", '"0.1"'])
def test_a_share_that_checks_nothing_is_refused(root, share):
    (root / "pyproject.toml").write_text(TABLE.replace("[tool.ratchet]", f"[tool.ratchet]\nmax_slowdown = {share}", 1))
    with pytest.raises(Refusal, match=r"wanted a share such as 0\.02, at most 0\.5"):
        table.read(root)
