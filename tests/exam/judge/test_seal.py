"""The judge's seal moves with every file that a verdict follows from, and with no other."""

import shutil
from functools import cache
from pathlib import Path

import pytest

from ratchet.exam.judge.seal import protected_paths, recent_seal, seal, sealed_paths
from ratchet.process.boot import installed
from tests.imports import HERE, MODULES, closure

CHILDREN = (
    "ratchet.exam.candidate.target_worker",
    "ratchet.exam.candidate.worker",
    "ratchet.tpu.compiler.worker",
    "ratchet.exam.judge.freezing_worker",
    "ratchet.exam.judge.values_worker",
    "ratchet.exam.judge.schedule_worker",
    "ratchet.exam.measure.timing_worker",
)


DIGEST, INTERPRETER = cache(installed.digest), cache(installed.interpreter)


@pytest.fixture(autouse=True)
def _read_once(monkeypatch):
    """What is installed stays the same here, and reading it is most of what a seal costs."""
    monkeypatch.setattr(installed, "digest", DIGEST)
    monkeypatch.setattr(installed, "interpreter", INTERPRETER)


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """This repository's own files that are protected."""
    root = tmp_path_factory.mktemp("tree")
    for name in protected_paths(HERE):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HERE / name, root / name)
    return root


@pytest.fixture
def tree(copied):
    """The same, as it was before each test."""
    before = {name: (copied / name).read_bytes() for name in protected_paths(copied)}
    yield copied
    for name in protected_paths(copied):
        if name not in before:
            (copied / name).unlink()
    for name, content in before.items():
        (copied / name).write_bytes(content)


def edit(path: Path, text: str = "\n# changed\n") -> None:
    path.write_text(path.read_text() + text)


def test_the_seal_covers_all_that_a_verdict_is_computed_by():
    """What ``prepare.judge`` imports, wherever the statement is, and what the children import that it starts."""
    reached = closure("prepare", *CHILDREN, without="ratchet.commands.cli")
    assert "ratchet.exam.problem.parity" in reached
    sealed = set(sealed_paths(HERE))
    assert {MODULES[name].path.relative_to(HERE).as_posix() for name in reached} <= sealed


SEALED = (
    "prepare.py",
    "requirements.lock",
    "ratchet.sh",
    "ratchet/process/sandbox/child.py",
    "ratchet/process/boot/start.py",
    "ratchet/exam/problem/parity.py",
    "ratchet/exam/judge/seal.py",
    "ratchet/tpu/chips/fitted.json",
    "ratchet/exam/candidate/contract.py",
    "ratchet/exam/measure/stats.py",
)
SHOWS_OR_KEEPS = (
    "ratchet/view/terminal.py",
    "ratchet/loop/decide.py",
    "ratchet/commands/cli.py",
    "ratchet/commands/options.py",
    "pyproject.toml",
)


@pytest.mark.parametrize("name", [*SEALED, *SHOWS_OR_KEEPS])
def test_what_can_change_a_verdict_changes_the_seal_and_all_is_protected(tree, name):
    before = seal(tree)
    edit(tree / name)
    assert len(before) == 16
    assert (seal(tree) != before) is (name in SEALED)
    assert name in protected_paths(tree)


def test_a_file_that_comes_goes_or_is_renamed_counts(tree):
    before = seal(tree)
    new = tree / "ratchet/tpu/new_room/one.py"
    new.parent.mkdir()
    new.write_text("")
    assert seal(tree) != before
    new.unlink()
    assert seal(tree) == before
    (tree / "ratchet/exam/problem/parity.py").rename(tree / "ratchet/exam/judge/parities.py")
    assert seal(tree) != before
    (tree / "ratchet/exam/judge/parities.py").rename(tree / "ratchet/exam/problem/parity.py")
    (tree / "prepare.py").unlink()
    assert seal(tree) != before


def test_content_does_not_move_between_files(tree):
    before = seal(tree)
    one, other = tree / "ratchet/exam/problem/parity.py", tree / "ratchet/exam/judge/audit.py"
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    assert seal(tree) != before


def test_what_is_no_source_does_not_count(tree):
    before = seal(tree)
    cache = tree / "ratchet" / "exam" / "judge" / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "a.cpython-311.pyc").write_text("")
    (cache / "a.py").write_text("")
    (tree / "ratchet" / "exam" / "judge" / "notes.txt").write_text("")
    (tree / "kernel.py").write_text("changed")
    assert seal(tree) == before


def test_a_checkout_with_other_line_ends_has_the_same_seal(tree):
    before = seal(tree)
    for name in sealed_paths(tree):
        (tree / name).write_bytes((tree / name).read_bytes().replace(b"\n", b"\r\n"))
    assert seal(tree) == before


def test_neither_tests_nor_kernels_are_protected():
    assert not any(name.startswith(("tests/", "docs/")) or name == "kernel.py" for name in protected_paths(HERE))


@pytest.mark.parametrize("what", ["interpreter", "digest"])
def test_the_interpreter_and_what_is_installed_change_the_seal(tree, monkeypatch, what):
    before = seal(tree)
    monkeypatch.setattr(installed, what, lambda *_: "another")
    assert seal(tree) != before


def test_what_was_seen_a_moment_ago_is_taken_once_more(tree, monkeypatch):
    before = seal(tree)
    edit(tree / "ratchet/exam/problem/parity.py")
    assert recent_seal(tree) == before
    after = seal(tree)
    assert after != before
    assert recent_seal(tree) == after
    edit(tree / "ratchet/exam/problem/parity.py")
    monkeypatch.setattr("ratchet.exam.judge.seal.RECENT_S", 0.0)
    assert recent_seal(tree) not in (before, after)
