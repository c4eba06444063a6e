"""Which files of the user's go into the jail: those that are imported by name."""

import pytest

from ratchet.exam.candidate.source_closure import SourceClosure, check_tops, closure_of, import_chain
from ratchet.values.status import Status
from tests.refusals import refused

FILES = {
    "pkg/__init__.py": b"from .early import *\n",
    "pkg/early.py": b"",
    "pkg/kernels.py": b"import os, jax\nfrom . import helper\nfrom .deep.inner import fn as f\n",
    "pkg/helper.py": b"def late():\n    from pkg import tables\n",
    "pkg/tables.py": b"import pkg.kernels\n",
    "pkg/deep/inner.py": b"from ..shared import x\nfrom ... import beyond\n",
    "pkg/shared.py": b"",
    "pkg/unrelated.py": b"this is no Python",
    "beyond.py": b"",
    "other.py": b"",
}


def names(modules, files=FILES, others=None):
    return sorted(closure_of(files.get, modules, others).files)


def test_imports_are_followed_wherever_they_are():
    assert names(["pkg.kernels"]) == [
        "pkg/__init__.py",
        "pkg/deep/inner.py",
        "pkg/early.py",
        "pkg/helper.py",
        "pkg/kernels.py",
        "pkg/shared.py",
        "pkg/tables.py",
    ]


def test_a_relative_import_never_leaves_the_source_folder():
    assert "beyond.py" not in names(["pkg.deep.inner"])


def test_an_installed_module_has_no_files():
    assert names(["jax.experimental.pallas"]) == []


def test_files_to_add_are_followed_too():
    found = names(["pkg.early"], others={"other.py": b"import beyond\n", "pkg/table.json": b"{}"})
    assert found == ["beyond.py", "other.py", "pkg/__init__.py", "pkg/early.py", "pkg/table.json"]


def test_a_syntax_error_names_its_file_and_line():
    with refused(Status.SYNTAX_ERROR, r"pkg/unrelated\.py:1"):
        names(["pkg.unrelated"])


def test_the_digest_follows_every_byte_and_path_and_nothing_else():
    one = SourceClosure(files={"a.py": b"1", "b.py": b"2"})
    assert one.digest() == SourceClosure(files={"b.py": b"2", "a.py": b"1"}).digest()
    assert one.digest() != SourceClosure(files={"a.py": b"1", "b.py": b"3"}).digest()
    assert one.digest() != SourceClosure(files={"a.py": b"1", "c.py": b"2"}).digest()
    assert one.digest(without=["b.py"]) == SourceClosure(files={"a.py": b"1", "b.py": b"3"}).digest(without=["b.py"])
    assert one.zipped() == SourceClosure(files={"b.py": b"2", "a.py": b"1"}).zipped()


@pytest.mark.parametrize(
    "path", ["json.py", "os/__init__.py", "ratchet/x.py", "prepare.py", "sitecustomize.py", "taken.py"]
)
def test_nothing_that_is_installed_is_shadowed(path, tmp_path):
    (tmp_path / "taken").mkdir()
    with refused(Status.FORBIDDEN, "would shadow"):
        check_tops(SourceClosure(files={path: b""}), [str(tmp_path)])


def test_a_name_of_ones_own_is_fine(tmp_path):
    check_tops(SourceClosure(files={"pkg/json.py": b"", "mine.py": b""}), [str(tmp_path)])


def test_the_way_to_a_file_goes_through_packages_that_import_it():
    files = {
        "pkg/__init__.py": b"from . import ops",
        "pkg/reference.py": b"import math",
        "pkg/ops/__init__.py": b"from .config import load\nfrom . import kernels as k",
        "pkg/ops/config.py": b"",
        "pkg/ops/kernels.py": b"from pkg.ops.config import load",
        "other.py": b"import math",
    }
    closure = SourceClosure(files=files)
    ways = ("pkg/__init__.py", "pkg/ops/__init__.py", "pkg/ops/kernels.py")
    assert import_chain(closure, ["pkg.reference"], "pkg/ops/kernels.py") == ways
    assert import_chain(closure, ["pkg.ops.kernels"], "pkg/ops/kernels.py") == ("pkg/ops/kernels.py",)
    assert import_chain(closure, ["other", "absent"], "pkg/ops/kernels.py") == ()
