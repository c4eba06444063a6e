"""Constants of a kernel file: found in its syntax tree, and changed without another byte."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.kernelfile.knobs import choices, in_words, knobs, points, tuning, values, with_constants
from ratchet.values.status import Refusal, Status

FILE = b"""# BQ = 1
BQ = 256  # rows of a block
BKV: int = 512
HEADS, (DEPTH, MODE) = 4, (2, "plain")
A = B = 7
TWICE = 1
TWICE = 2
GROWS = 1
GROWS += 1
def f(BQ=3):
    INNER = 4
    return BQ
"""

LITERALS = st.one_of(
    st.integers(), st.booleans(), st.none(), st.text(max_size=8), st.floats(allow_nan=False, allow_infinity=False)
)


def test_constants_that_are_set_once_at_the_top_are_knobs():
    found = knobs(FILE, "kernel.py")
    assert {name: knob.value for name, knob in found.items()} == {
        "BQ": "256", "BKV": "512", "HEADS": "4", "DEPTH": "2", "MODE": '"plain"', "A": "7", "B": "7",
    }  # fmt: skip
    assert found["DEPTH"].line == 4


@given(st.dictionaries(st.sampled_from(["BQ", "BKV", "HEADS", "DEPTH", "MODE"]), LITERALS))
def test_only_the_values_change(point):
    changed = with_constants(FILE, "kernel.py", point)
    before, after = knobs(FILE, "kernel.py"), knobs(changed, "kernel.py")
    rest, left = FILE, changed
    for name in sorted(before, key=lambda one: -before[one].start):
        if name in point:
            assert ast.literal_eval(after[name].value) == point[name]
            rest = rest[: before[name].start] + rest[before[name].end :]
            left = left[: after[name].start] + left[after[name].end :]
    assert rest == left


@given(st.dictionaries(st.sampled_from(["A", "B", "BQ"]), LITERALS))
def test_names_that_share_a_value_get_one_each(point):
    changed = with_constants(FILE, "kernel.py", point)
    before, after = knobs(FILE, "kernel.py"), knobs(changed, "kernel.py")
    assert {name: ast.literal_eval(knob.value) for name, knob in after.items()} == {
        **{name: ast.literal_eval(knob.value) for name, knob in before.items()}, **point,
    }  # fmt: skip
    assert with_constants(changed, "kernel.py", point) == changed
    assert len(changed.splitlines()) == len(FILE.splitlines())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_places_are_bytes(end, mark):
    source = f"{mark}X = 1; Y = 'ä€'; Z = 3{end}NAME = 'ö'  # ß{end}BQ = 1{end}".encode()
    expected = f"{mark}X = 5; Y = 'ä€'; Z = 30{end}NAME = 'ö'  # ß{end}BQ = 1024{end}".encode()
    assert with_constants(source, "kernel.py", {"BQ": 1024, "X": 5, "Z": 30}) == expected


@pytest.mark.parametrize(
    ("source", "status", "said"),
    [
        (b"BQ = (", Status.SYNTAX_ERROR, "never closed"),
        (b"# -*- coding: latin-1 -*-\nBQ = 1\n", Status.USAGE, "UTF-8"),
        (b"# \xe9\nTK = 1\n", Status.USAGE, "UTF-8"),
        (b"TK = " + b"-" * 100_000 + b"1\n", Status.SYNTAX_ERROR, ""),
        (FILE, Status.USAGE, "sets no constant 'TK' once at its top level; it has: BQ = 256"),
        (b"TK = 1\nTK = 2\n", Status.USAGE, "it has: none"),
        (b"X = 1\n(TN, TM) = (TK, U) = 2, 3\n", Status.USAGE, "kernel.py:2: TN and TK share one value"),
    ],
)
def test_what_is_no_knob_is_refused(source, status, said):
    with pytest.raises(Refusal, match=r"kernel\.py") as caught:
        with_constants(source, "kernel.py", {"TK": 1})
    assert caught.value.status is status
    assert said in caught.value.message


def test_choices_and_their_points():
    assert choices("BQ=512,1024,512") == ("BQ", (512, 1024))
    assert choices("FLAG=True,1") == ("FLAG", (True, 1))
    axes = [choices("BQ=1,2"), choices("MODE='a',None")]
    assert points(axes) == [
        {"BQ": 1, "MODE": "a"}, {"BQ": 1, "MODE": None}, {"BQ": 2, "MODE": "a"}, {"BQ": 2, "MODE": None},
    ]  # fmt: skip
    assert in_words({"BQ": 1, "MODE": "a"}) == "BQ 1, MODE a"


@pytest.mark.parametrize(
    "text", ["BQ", "BQ=", "=3", "B Q=3", "BQ=open('x')", "BQ=[1]", "BQ=1,BKV", "BQ=1)+(2", "BQ=1e999", "BQ=("]
)
def test_what_names_no_values_is_refused(text):
    with pytest.raises(Refusal, match="NAME=VALUE") as caught:
        choices(text)
    assert caught.value.status is Status.USAGE


def test_a_knob_named_twice_is_refused():
    with pytest.raises(Refusal, match="BQ is named twice"):
        points([choices("BQ=1"), choices("BQ=2")])


TUNED = b"""# tune nothing here
SEQ = 1024
BQ = 256  # tune: 128, 256, 512
MODE: str = "a"  # tune: "a", 'b'  (both)
# where: SEQ % BQ == 0
TEXT = "# tune: 1"
def f():
    return 1  # where it is
"""


def test_comments_say_which_values_to_try():
    said = tuning(TUNED.replace(b"  (both)", b""), "kernel.py")
    assert said.axes == (("BQ", (128, 256, 512)), ("MODE", ("a", "b")))
    assert said.where == ("SEQ % BQ == 0",)
    assert values(TUNED, "kernel.py") == {"SEQ": 1024, "BQ": 256, "MODE": "a", "TEXT": "# tune: 1"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (TUNED, "no Python constants"),
        (b"A, B = 1, 2  # tune: 1, 2\n", "kernel.py:1: `# tune:` is behind 2 constants"),
        (b"A = 1\n# tune: 1, 2\n", "kernel.py:2: `# tune:` is behind 0 constants"),
        (b"def f():\n    A = 1  # tune: 1, 2\n", "kernel.py:2: `# tune:` is behind 0 constants"),
        (b"A = 1  # tune: open('x')\n", "no Python constants"),
        (b"A = 1  # tune:\n", "NAME=VALUE"),
    ],
)
def test_a_comment_that_cannot_be_followed_is_refused(source, said):
    with pytest.raises(Refusal) as caught:
        tuning(source, "kernel.py")
    assert caught.value.status is Status.USAGE
    assert said in caught.value.message


def test_a_constant_that_is_no_literal_has_no_value():
    assert values(b"A = 1 << 3\nB = None\nC = [1]\nD = -4\n", "kernel.py") == {"B": None, "D": -4}
