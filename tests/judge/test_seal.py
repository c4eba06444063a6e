"""The judge's seal moves with every file that a verdict depends on, and with no other."""

from pathlib import Path

import pytest

from ratchet.judge.seal import SEALED_FILES, seal, sealed_paths

HERE = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path):
    for name in (*SEALED_FILES, "ratchet/a.py", "ratchet/judge/b.py", "ratchet/verdict.schema.json", "kernel.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{name}\nline\n".encode())
    return tmp_path


def test_every_sealed_file_counts(tree):
    before = seal(tree)
    assert len(before) == 16
    assert len(sealed_paths(tree)) == len(SEALED_FILES) + 3
    for name in sealed_paths(tree):
        content = (tree / name).read_bytes()
        (tree / name).write_bytes(content + b"#")
        assert seal(tree) != before, name
        (tree / name).write_bytes(content)
    assert seal(tree) == before


def test_a_file_that_comes_goes_or_is_renamed_counts(tree):
    before = seal(tree)
    (tree / "ratchet/judge/new.py").write_text("")
    assert seal(tree) != before
    (tree / "ratchet/judge/new.py").unlink()
    (tree / "ratchet/a.py").rename(tree / "ratchet/c.py")
    assert seal(tree) != before
    (tree / "ratchet/c.py").rename(tree / "ratchet/a.py")
    (tree / "prepare.py").unlink()
    assert seal(tree) != before


def test_content_does_not_move_between_files(tree):
    before = seal(tree)
    a, b = tree / "ratchet/a.py", tree / "ratchet/judge/b.py"
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)
    assert seal(tree) != before


def test_what_does_not_judge_does_not_count(tree):
    before = seal(tree)
    (tree / "kernel.py").write_text("changed")
    (tree / "results.tsv").write_text("rows")
    cache = tree / "ratchet" / "__pycache__"
    cache.mkdir()
    (cache / "a.cpython-311.pyc").write_text("")
    (cache / "a.py").write_text("")
    (tree / "ratchet" / "notes.txt").write_text("")
    assert seal(tree) == before


def test_a_checkout_with_other_line_ends_has_the_same_seal(tree):
    before = seal(tree)
    for name in sealed_paths(tree):
        (tree / name).write_bytes((tree / name).read_bytes().replace(b"\n", b"\r\n"))
    assert seal(tree) == before


def test_what_this_repository_seals():
    sealed = sealed_paths(HERE)
    assert set(SEALED_FILES) <= set(sealed)
    assert {"ratchet/judge/parity.py", "ratchet/candidate/contract.py", "ratchet/cli.py"} <= set(sealed)
    assert not any(name.startswith(("tests/", "docs/")) or name == "kernel.py" for name in sealed)
