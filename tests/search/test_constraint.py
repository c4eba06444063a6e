"""Conditions on knobs: evaluated as Python would, and nothing else is evaluated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.search.space import Constraint
from ratchet.values.status import Refusal, Status

OPERANDS = st.sampled_from(["A", "B", "0", "1", "-3", "2.5", "128", "True"])
EXPRESSIONS = st.recursive(
    OPERANDS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "<", "<=", "==", "!=", ">", ">=", "and", "or"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        inner.map(lambda one: f"(not {one})"),
        st.tuples(inner, inner, inner).map(lambda parts: "({} if {} else {})".format(*parts)),
        st.tuples(inner, inner, inner).map(lambda parts: "({} < {} <= {})".format(*parts)),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, st.integers(-5, 300), st.integers(-5, 300))
def test_it_holds_where_python_says_so(text, a, b):
    assert Constraint.of(text).holds({"A": a, "B": b}) == bool(eval(text, {"A": a, "B": b}))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("SEQ % BQ == 0 and BQ * BKV * 4 <= 2**20", True),
        ("BQ // 3 == 85 and BQ / 512 == 0.5", True),
        ("BQ in (64, 128)", False),
        ("MODE in ('a', 'b') and MODE != 'c'", True),
        ("NONE == None", True),
        ("128 <= BQ < 256", False),
        ("BQ == 256 or 1 // 0", True),
        ("BQ != 256 and 1 // 0", False),
    ],
)
def test_conditions_of_kernels(text, holds):
    known = {"SEQ": 1024, "BQ": 256, "BKV": 512, "MODE": "a", "NONE": None}
    assert Constraint.of(text).holds(known) is holds


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('x')",
        "BQ.real",
        "BQ[0]",
        "lambda: 1",
        "[x for x in (1, 2)]",
        "f'{BQ}'",
        "(BQ := 3)",
        "{1: 2}",
        "BQ << 10000",
        "b'x' == 1",
        "1j == 1",
        "...",
        "BQ = 3",
        "",
        "import os",
        "1 +" * 400 + "1",
        "(" * 300 + "1" + ")" * 300,
        "not " * 240 + "\0",
    ],
)
def test_nothing_else_is_read(text):
    with pytest.raises(Refusal, match="the condition") as caught:
        Constraint.of(text)
    assert caught.value.status is Status.USAGE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A // 0", "zero"),
        ("A % (A - A)", "zero"),
        ("2 ** (A ** 9)", "too large"),
        ("A ** -1.5 > (0 - A) ** 0.5", "no real number"),
        ("'a' * A == 1", "not both numbers"),
        ("'a' < A", "not supported"),
        ("A in 3", "iterable"),
        ("10.0 ** 999", "out of range"),
    ],
)
def test_what_has_no_value_is_refused_with_the_point(text, said):
    with pytest.raises(Refusal) as caught:
        Constraint.of(text).holds({"A": 99})
    assert caught.value.status is Status.USAGE
    assert said in caught.value.message.lower()
