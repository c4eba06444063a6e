"""What every text is made of: words, numbers, places and columns, and text from outside made fit to print."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.values.place import Code, Op, SourceLine, Window, Windows
from ratchet.view.text import cause, change, clean, clean_lines, columns, fitted, fixed, kind_of, size, waited, where

FRAGMENTS = (
    *("RESULT: score=9", "\n", "\r", "\x85", "\u2028", "\t", " " * 120, "\x00", "\ud800", "[bold]", "[/]"),
    *("\x1b", "\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;x\x1b\\", "\x1b\n[31m", "\x9b31m", "\u202e", "\u2066", "\u200b"),
)
NASTY = st.lists(st.one_of(st.text(), st.sampled_from(FRAGMENTS))).map("".join)
FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


@given(NASTY)
def test_clean_text_is_one_visible_line(text: str) -> None:
    cleaned = clean(text)
    assert not FORBIDDEN.search(cleaned)
    assert len(cleaned.splitlines()) <= 1
    assert clean(cleaned) == cleaned
    assert len(clean(text, 10)) <= 10
    assert all(line == clean(line) for line in clean_lines(text))


def test_cells_are_under_one_another_and_nothing_is_behind_the_last() -> None:
    assert columns([("a", "", "c"), ("long", "b", "")]) == ["a        c", "long  b"]
    assert columns([("ms", "why"), ("0.25", "x")], numbers=True) == ["  ms  why", "0.25  x"]
    assert columns([]) == []
    with pytest.raises(ValueError, match="shorter"):
        columns([("a", "b"), ("a",)])


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0, "0.0000"), (1234.56, "1234.6"), (1234567.8, "1234568"), (0.000123456, "0.00012346"), (-2.5, "-2.5000")],
)
def test_fixed_never_uses_an_exponent(value: float, said: str) -> None:
    assert fixed(value) == said


def test_other_words() -> None:
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 9 << 20: "9.00 MiB", 16 << 30: "16.00 GiB"}
    assert {given: size(given) for given in sizes} == sizes
    assert [kind_of(e) for e in ("v5e-model", "tpu")] == ["modelled", "measured"]
    assert [change(11, 10), change(9, 10), change(1, 0)] == ["+10.0 %", "-10.0 %", ""]


def test_places() -> None:
    windows = Windows(windows=(Window(kind="input", number=1), Window(kind="output", number=0)))
    places = {
        SourceLine(file="a\x1b[2J\n.py", line=3): "a .py:3",
        Code.PIPELINE: "pipeline code of the compiler",
        Code.TOP_LEVEL: "(top level)",
        Op(name="copy.1", opcode="copy"): "copy.1 (copy)",
        windows: "waits for window input 1, output 0",
    }
    assert {place: where(place) for place in places} == places
    assert waited(windows) == "for window input 1, output 0"
    assert waited(Code.PIPELINE) == "at pipeline code of the compiler"


def test_a_text_fits_its_width_and_goes_on_further_in():
    text = "head\n  1. " + "word " * 20
    assert fitted(text, None) == text
    lines = fitted(text, 40).split("\n")
    assert max(map(len, lines)) <= 40
    assert lines[1].startswith("  1. word")
    assert lines[2].startswith("      word")
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("NOT_FINITE: output 0 has 5; first at [0, 1]", "output 0 has 5"),
        ("slower: time +3 %; score 1", "slower: time +3 %"),
        ("one line\nand another", "one line"),
        ("", ""),
    ],
)
def test_a_cause_is_what_a_reason_begins_with(reason, said):
    assert cause(reason) == said
