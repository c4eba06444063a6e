"""The space of a file that names none: its blocks, and those that an edit of advise brought."""

from __future__ import annotations

import pytest

from ratchet.advise.advice import Edit
from ratchet.kernelfile.knobs import with_constants
from ratchet.search.space import space_of
from tests.advise.sources import ATTENTION, PRODUCT, ROWS, edits

EVERY = (16, 32, 64, 128, 256, 512, 1024, 2048)


def test_blocks_go_by_powers_of_two_and_divide_what_they_divided() -> None:
    space = space_of(ATTENTION.encode(), "other.py", [], [])
    assert {axis.name: axis.values for axis in space.axes} == {"ACROSS": EVERY, "ALONG": EVERY}
    points = list(space.points())
    assert {point["ALONG"] for point in points} == {16, 32, 64, 128, 256, 512}
    assert space.nearest(space.constants) == {"ACROSS": 64, "ALONG": 256}


def test_the_space_is_the_same_wherever_in_it_the_file_is() -> None:
    there = ATTENTION.replace("ACROSS = 64", "ACROSS = 512").replace("ALONG = 256", "ALONG = 32")
    one, other = (space_of(text.encode(), "other.py", [], []) for text in (ATTENTION, there))
    assert (one.axes, [each.text for each in one.where]) == (other.axes, [each.text for each in other.where])


def test_a_constant_that_an_edit_brings_is_one_of_them() -> None:
    (strips,) = edits(ATTENTION, Edit.STRIPS)
    space = space_of(strips.after, "other.py", [], [])
    assert [axis.name for axis in space.axes] == ["ACROSS", "ALONG", "STRIP"]
    assert all(point["ACROSS"] % point["STRIP"] == 0 for point in space.points())  # type: ignore[operator]


def test_small_ones_stay_small_and_odd_ones_odd() -> None:
    text = ROWS.replace("LINES = 16", "LINES = 4")
    (axis,) = space_of(text.encode(), "other.py", [], []).axes
    assert axis.values == (1, 2, 4, 8)
    (axis,) = space_of(ROWS.replace("LINES = 16", "LINES = 48").encode(), "other.py", [], []).axes
    assert axis.values == (24, 48, 96, 192, 384, 768, 1536)


def test_names_that_share_a_value_are_knobs_of_their_own() -> None:
    shared = ATTENTION.replace("ACROSS = 64\nALONG = 256", "ACROSS = ALONG = 64").encode()
    space = space_of(shared, "other.py", [], [])
    assert [axis.name for axis in space.axes] == ["ACROSS", "ALONG"]
    apart = with_constants(shared, "other.py", {"ALONG": 128})
    assert b"ACROSS, ALONG = 64, 128\n" in apart
    other = space_of(apart, "other.py", [], [])
    assert (other.axes, [one.text for one in other.where]) == (space.axes, [one.text for one in space.where])
    assert other.constants["ALONG"] == 128


@pytest.mark.parametrize(("given", "names"), [(["SIDE=128,256"], ["SIDE"]), ([], ["SIDE"])])
def test_what_is_named_is_all_and_a_side_in_a_tuple_is_no_knob(given: list[str], names: list[str]) -> None:
    assert [axis.name for axis in space_of(PRODUCT.encode(), "other.py", given, []).axes] == names
