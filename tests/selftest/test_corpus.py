"""Every entry of the corpus says what it is, and the corpus holds each class of attack."""

import pytest

from ratchet.process.sandbox.child import PACKAGE_ROOT
from ratchet.selftest import corpus as corpora
from ratchet.selftest.corpus import MODEL, NO_BASE
from ratchet.selftest.defences import BY_NAME
from ratchet.values.status import Refusal, Status
from tests.kernels import CANDIDATES

CORPUS = corpora.read(PACKAGE_ROOT)
ATTACKS = (*CORPUS.cheats, *CORPUS.planted)
LISTED = {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 27, 28, 29, 30}
"""Ways in which judges were fooled; 8, 25 and 26 are no file's."""
OURS = {40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51}
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


def corpus_of(tmp_path, **files):
    folder = tmp_path / corpora.FOLDER
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return corpora.read(tmp_path)


def test_a_variant_is_put_behind_the_cheat_that_it_changes(tmp_path):
    head = "# rejected as: WRONG_VALUES\n# base: "
    read = corpus_of(
        tmp_path,
        honest__ring="A = 1\n",
        cheats__c07_a=f'"""Cheat 7: a."""\n{head}ring\nB = 1\n',
        cheats__c07_b=f'"""Cheat 7: b."""\n{head}c07_a\nB = 2\n',
        cheats__c07_c=f'"""Cheat 7: c."""\n{head}c07_b\nB = 3\n',
    )
    a, _, c = read.cheats
    assert [one.base for one in read.cheats] == ["ring"] * 3
    assert c.text.startswith(a.text)
    assert [line for line in c.text.splitlines() if line.startswith("B")] == ["B = 1", "B = 2", "B = 3"]
    assert (c.name, c.what) == ("c07_c", "c")


def test_an_honest_kernel_may_be_another_one_or_a_file_of_the_tree_with_changes(tmp_path):
    (tmp_path / "example.py").write_text("SEQ = 512\n")
    (tmp_path / corpora.FOLDER / "cheats").mkdir(parents=True)
    read = corpus_of(
        tmp_path,
        honest__a="A = 1\n",
        honest__b='"""B."""\n# base: a\nA = 2\n',
        measured__short='"""Short."""\n# base: example.py\nSEQ = 128\n',
    )
    assert [line for line in read.honest["b"].source.splitlines() if line.startswith("A")] == ["A = 1", "A = 2"]
    short = read.honest["short"]
    assert short.on == "cpu"
    assert short.source.splitlines()[0] == "SEQ = 512"
    assert short.source.splitlines()[-1] == "SEQ = 128"


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


@pytest.mark.parametrize("one", CORPUS.planted, ids=lambda one: one.name)
def test_what_an_attack_replaces_in_the_judge_is_there(one):
    for name, (old, _) in one.replaced.items():
        assert not name.startswith("ratchet/") or old in (PACKAGE_ROOT / name).read_text(), name
