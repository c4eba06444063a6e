"""Every entry of the corpus says what it is, and the corpus holds each class of attack."""

import pytest

from ratchet.child import PACKAGE_ROOT
from ratchet.selftest import corpus as corpora
from ratchet.selftest.corpus import MODEL, NO_BASE
from ratchet.selftest.defences import BY_NAME
from ratchet.values.status import Refusal, Status
from tests.kernels import CANDIDATES

CORPUS = corpora.read(PACKAGE_ROOT)
ATTACKS = (*CORPUS.cheats, *CORPUS.planted)
LISTED = {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 27, 28, 29, 30}
"""Ways in which judges were fooled; 8, 25 and 26 are no file's."""
OURS = {40, 41, 42, 43, 44, 45, 46, 48}
"""Classes that this judge once let through, and those of four chips and of measuring."""


def test_there_are_many_of_many_kinds():
    assert len(ATTACKS) >= 80
    assert len({one.kind for one in ATTACKS}) >= 45
    assert {one.number for one in ATTACKS} >= LISTED | OURS
    assert sum(one.on == "cpu" for one in CORPUS.cheats) >= 8
    assert sum('"mesh"' in CORPUS.honest[c.base].source for c in CORPUS.cheats if c.base in CORPUS.honest) >= 10
    assert len(CORPUS.honest) >= 60


@pytest.mark.parametrize("one", ATTACKS, ids=lambda one: one.name)
def test_an_attack_says_what_it_is(one):
    assert one.what
    assert one.kind
    assert one.expected
    assert Status.PASS.name not in one.expected
    assert one.caught_by
    assert set(one.caught_by) <= set(BY_NAME)
    assert one.number is None or one.name.startswith(f"c{one.number:02}_")


@pytest.mark.parametrize("one", CORPUS.cheats, ids=lambda one: one.name)
def test_a_cheat_is_put_behind_an_honest_kernel_of_its_evaluator(one):
    if one.base != NO_BASE:
        assert CORPUS.honest[one.base].on == one.on


def test_a_tree_without_a_corpus_is_refused(tmp_path):
    with pytest.raises(Refusal, match="needs the corpus in tests/candidates") as refused:
        corpora.read(tmp_path)
    assert refused.value.status is Status.NOT_FOUND


@pytest.mark.parametrize("line", ["", "# rejected as: NONSENSE\n", "# kind: odd\n"])
def test_a_cheat_without_an_outcome_is_refused(tmp_path, line):
    path = tmp_path / "c01_odd.py"
    path.write_text(f'"""Cheat 1: it says nothing."""\n{line}value = 1\n')
    with pytest.raises(Refusal, match=r"c01_odd\.py does not say as what it is rejected"):
        corpora.cheat(path)


def test_headers_end_where_code_begins(tmp_path):
    path = tmp_path / "c07_odd.py"
    path.write_text(
        '"""Cheat 7: odd."""\n# rejected as: PASS, NO_GAIN\n# left out of: tests, quick\nvalue = 1\n# base: none\n'
    )
    read = corpora.cheat(path)
    assert (read.number, read.what, read.left_out_of, read.base, read.on) == (
        7,
        "odd",
        ("tests", "quick"),
        "rows_attention",
        MODEL,
    )
    assert read.expected == ("PASS", "NO_GAIN")


@pytest.mark.parametrize("text", ["cheat = 19\n", "nonsense", 'cheat = 1\nexpected = ["HARMLESS"]\n'])
def test_an_attack_on_the_tree_that_lacks_something_is_refused(tmp_path, text):
    for name in ("honest", "cheats"):
        (tmp_path / corpora.FOLDER / name).mkdir(parents=True)
    (tmp_path / corpora.FOLDER / "cheats" / "c19_odd.toml").write_text(text)
    with pytest.raises(Refusal, match=r"c19_odd\.toml is no attack on the tree"):
        corpora.read(tmp_path)


def test_all_files_of_the_corpus_are_read():
    there = [path for path in (CANDIDATES / "cheats").iterdir() if path.is_file()]
    assert len(there) == len(ATTACKS)
