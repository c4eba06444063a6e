"""The mutator makes the faults that it promises, and its rooms and known faults are of today's tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import benchmarks
from benchmarks.lib.mutation.mutator import Mutant, mutants, sampled
from benchmarks.lib.mutation.rooms import KNOWN, ROOMS
from benchmarks.mutants import change, equivalents

TREE = Path(benchmarks.__file__).resolve().parent.parent
SOURCE = '''
def act(values: tuple[int, 2], most: int = 3) -> None:
    """Text 5."""
    log("7")
    total = 0
    for value in values:
        if value < most and not total:
            total += value
        if value > 1.5:
            break
    if total:
        raise ValueError(f"{total + 1}")
    os.fsync(min(total, 8))
'''


def texts(what: str) -> set[str]:
    return {SOURCE[m.start : m.end] + " -> " + m.text for m in mutants(SOURCE, "a.py") if m.what == what}


@pytest.mark.parametrize(("what", "wanted"), [
    ("comparison", {"value < most -> (value <= most)", "value < most -> (value >= most)"}),
    ("constant", {"3 -> 4", "3 -> 9", "3 -> 2", "1.5 -> 4.5", "1.5 -> 0.5", "0 -> 1", "8 -> 24"}),
    ("and/or", {"value < most and not total -> (value < most or not total)"}),
    ("condition dropped", {"value < most and not total -> (value < most)"}),
    ("negation dropped", {"not total -> (total)"}),
    ("call dropped", {"os.fsync(min(total, 8)) -> pass", 'log("7") -> pass'}),
    ("call swapped", {"min -> max"}),
    ("statement dropped", {"total += value -> pass"}),
    ("raise dropped", {'raise ValueError(f"{total + 1}") -> pass'}),
    ("early return", {'log("7") -> return'}),
    ("branch never taken", {"total -> False", "value > 1.5 -> False"}),
    ("loop not ended", {"break -> continue"}),
])  # fmt: skip
def test_faults_of_each_kind(what: str, wanted: set[str]) -> None:
    assert wanted <= texts(what)


def test_annotations_and_texts_are_left_alone() -> None:
    lines = SOURCE.splitlines()
    changed = {(m.line, m.what) for m in mutants(SOURCE, "a.py")}
    assert not {what for line, what in changed if '"""' in lines[line - 1]}
    assert texts("operator") == set(), "what is added within a message"
    assert "2 -> 3" not in texts("constant"), "within an annotation"


def test_every_fault_is_python_and_a_change() -> None:
    for file in ("ratchet/judge/parity.py", "ratchet/scalar.py"):
        source = (TREE / file).read_text()
        made = mutants(source, file)
        assert len(made) > 100
        for mutant in made[::10]:
            ast.parse(mutant.applied(source))
            assert mutant.applied(source) != source
            assert change(mutant, source).startswith("-")


def test_a_sample_repeats() -> None:
    everything = list(mutants(SOURCE, "a.py"))
    first, again = (list(sampled(everything, 5, seed=3)) for _ in range(2))
    assert first == again
    assert len(first) == 5
    assert list(sampled(everything, 5, seed=4)) != first
    assert list(sampled(everything, 10_000, seed=0)) == everything


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_a_known_fault_is_still_possible(known) -> None:  # type: ignore[no-untyped-def]
    source = (TREE / known.file).read_text()
    mutant = known.mutant(source)
    assert isinstance(mutant, Mutant)
    ast.parse(mutant.applied(source))


def test_rooms_have_sources_and_tests() -> None:
    for name, room in ROOMS.items():
        assert room.files(TREE) or not room.sources, name
        for test in room.tests:
            assert (TREE / test.partition("::")[0]).exists(), test


def test_equivalent_faults_have_a_reason_and_are_still_possible() -> None:
    for (file, lines), reason in equivalents().items():
        source = (TREE / file).read_text()
        assert len(reason) > 20
        assert lines in {change(mutant, source) for mutant in mutants(source, file)}, (file, lines)
