"""The layout of tables."""

import pytest

from ratchet.view.text import columns


def test_cells_are_under_one_another_and_nothing_is_behind_the_last():
    assert columns([("a", "", "c"), ("long", "b", "")]) == ["a        c", "long  b"]


def test_numbers_end_on_the_right_and_what_is_said_of_them_begins_on_the_left():
    assert columns([("ms", "why"), ("0.25", "x")], numbers=True) == ["  ms  why", "0.25  x"]


def test_no_row_is_no_line():
    assert columns([]) == []


def test_rows_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        columns([("a", "b"), ("a",)])
