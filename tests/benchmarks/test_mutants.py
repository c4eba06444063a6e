"""The mutator makes the faults that it promises, and its rooms and known faults are of today's tree."""

from __future__ import annotations

import ast

import pytest

from benchmarks.mutants.__main__ import change, equivalents
from benchmarks.mutants.mutator import Mutant, is_python, mutants, sampled, written
from benchmarks.mutants.reach import Ran, choice, lines_of
from benchmarks.mutants.rooms import KNOWN, ROOMS
from tests.imports import HERE

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


@pytest.mark.parametrize(("source", "lines"), [
    ("class Program(Protocol):\n    def run(self, at: int = 3): ...\n    def say(self, at: int = 3): 'Says.'\n", set()),
    ("def load(self, at: int = 3):\n    'Loads.'\n    raise NotImplementedError\n", set()),
    ("@dataclass(frozen=True)\nclass Limits:\n    most: int = 3\n    @cache(4)\n    def a(self): return 5\n", {3, 5}),
], ids=["a protocol", "a base", "decorators"])  # fmt: skip
def test_what_only_declares_and_decorators_are_left_alone(source: str, lines: set[int]) -> None:
    assert {m.line for m in mutants(source, "a.py")} == lines


@pytest.mark.slow
def test_every_fault_is_python_and_a_change() -> None:
    for file in ("ratchet/exam/problem/parity.py", "ratchet/tpu/scalar.py"):
        source = (HERE / file).read_text()
        made = mutants(source, file)
        assert len(made) > 100
        for mutant in made[::10]:
            ast.parse(mutant.applied(source))
            assert mutant.applied(source) != source
            assert change(mutant, source).startswith("-")


def test_a_sample_repeats() -> None:
    everything = list(mutants(SOURCE, "a.py"))
    first, again, other = (sampled(everything, 5, seed=seed) for seed in (3, 3, 4))
    assert first == again != other
    assert len(first) == 5
    assert set(sampled(everything, 10_000, seed=0)) == set(everything)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_a_known_fault_is_still_possible(known) -> None:  # type: ignore[no-untyped-def]
    source = (HERE / known.file).read_text()
    mutant = known.mutant(source)
    assert isinstance(mutant, Mutant)
    ast.parse(mutant.applied(source))


LOOP = """LIMIT = 3
def act(values,
        most=4):
    for value in (
        values + [5]
    ):
        if value > 6:
            value += 7
    return value
"""


@pytest.mark.parametrize(("constant", "lines"), [("3", set()), ("4", set()), ("5", {4, 5, 6}), ("6", {7}), ("7", {8})])
def test_the_lines_of_a_fault_are_those_of_its_statement(constant: str, lines: set[int]) -> None:
    mutant = next(m for m in mutants(LOOP, "a.py") if LOOP[m.start : m.end] == constant)
    assert lines_of(LOOP, mutant) == lines


def ran(test: str, seconds: float, *lines: int) -> Ran:
    return Ran(test=test, lines={"ratchet/a.py": frozenset(lines)} if lines else {}, seconds=seconds)


def test_a_fault_meets_the_tests_that_run_its_line_and_those_of_its_own_file_first() -> None:
    tests = [
        ran("tests/test_b.py::quick", 0.1, 1, 7),
        ran("tests/test_b.py::other", 0.1, 1),
        ran("tests/test_a.py::slow", 9, 7),
        ran("tests/test_a.py::quick", 1, 7, 8),
        ran("tests/test_b.py::reads", 0.2),
        ran("tests/test_c.py::elsewhere", 0.1),
    ]
    own = ("tests/test_a.py::quick", "tests/test_a.py::slow", "tests/test_b.py::quick")
    made = {LOOP[m.start : m.end]: m for m in mutants(LOOP, "ratchet/a.py") if m.what == "constant"}

    def chosen(constant: str, *, children: bool = False) -> tuple[str, ...]:
        return choice(made[constant], LOOP, tests, children=children)

    assert chosen("6") == own
    assert chosen("6", children=True) == (
        *(*own, "tests/test_c.py::elsewhere", "tests/test_b.py::other", "tests/test_b.py::reads"),
    )
    assert chosen("7") == own[:1]
    assert chosen("5") == (), "no test runs it"
    assert set(chosen("3")) == {test.test for test in tests[:-1]}, "whoever may read it"
    assert choice(made["3"], LOOP, tests[-1:], children=False) == ("tests/test_c.py::elsewhere",)
    tests[2] = ran("tests/test_a.py::slow", 100.5, 7)
    assert chosen("6") == own[:1], "there is no time for more"
    assert choice(made["6"], LOOP, tests[2:3], children=False) == ("tests/test_a.py::slow",), "one is always tried"


def test_rooms_have_sources_and_tests() -> None:
    for name, room in ROOMS.items():
        assert room.files(HERE) or not room.sources, name
        for test in room.test_files(HERE):
            assert (HERE / test.partition("::")[0]).is_file(), test


def test_equivalent_faults_have_a_reason_and_are_still_possible() -> None:
    by_file: dict[str, set[str]] = {}
    for (file, lines), reason in equivalents().items():
        assert len(reason) > 20
        by_file.setdefault(file, set()).add(lines)
    for file, wanted in by_file.items():
        source = (HERE / file).read_text()
        listed = [mutant for mutant in written(source, file) if change(mutant, source) in wanted]
        assert wanted == {change(mutant, source) for mutant in listed if is_python(mutant.applied(source))}, file
