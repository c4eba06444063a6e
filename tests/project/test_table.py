"""What `[tool.ratchet]` says, and what is said of it where it is wrong."""

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


def test_a_python_beside_the_table_is_named_from_there(root):
    (root / "pyproject.toml").write_text(
        TABLE.replace("[tool.ratchet]", '[tool.ratchet]\npython = ".venv/bin/python"', 1)
    )
    assert table.read(root).python == str(root / ".venv" / "bin" / "python")
