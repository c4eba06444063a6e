"""Two experiments side by side, as text and as JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ratchet.loop.difference import difference
from ratchet.view.difference import difference_document, difference_text
from ratchet.view.document import dumps
from tests.loop.test_difference import AFTER, BEFORE, NEW, OLD, at, cost, run, side
from tests.view.timelines import occupancy

COLUMNS = {"evaluator": "v5e-model", "vmem_bytes": "1048576", "spills": "3"}
ONE = side(BEFORE, OLD, id="one", median_ms="2.0", score="10.0", decision="kept", **COLUMNS)
TWO = side(AFTER, NEW, id="two", median_ms="1.5", score="20.0", note="experiment: twice", **COLUMNS)


def test_the_text_says_what_changed_and_why():
    text = difference_text(difference(ONE, TWO))
    assert "latency, modelled" in text
    assert "2.0000 ms  1.5000 ms  1.333x as fast, time -25.0 %" in text
    assert "what explains -589 cycles" in text
    assert "-700    119%     900    200  empty bundles that wait for MXU, before most at kernel.py:5" in text
    assert "+100" in text
    assert "kernel.py:6  y = x + 1" in text
    assert "  -BQ = 1\n  +BQ = 2\n" in text
    assert "equal conditions" not in text


def test_limits_along_the_programs_and_ends_of_turns_are_beside_each_other():
    (turns, *_), stores = occupancy().turns, occupancy().limits[1]
    shorter = dataclasses.replace(
        occupancy(),
        limits=(dataclasses.replace(stores, cycles=100), *occupancy().limits[2:]),
        turns=(dataclasses.replace(turns, turns=5, cycles=150),),
    )
    old, new = (
        dataclasses.replace(one, timeline=dataclasses.replace(one.timeline, occupancy=(made,)))
        for one, made in ((ONE, occupancy()), (TWO, shorter))
    )
    text = difference_text(difference(old, new))
    assert "-8,000   8,000      0  where the matrix units are full" in text
    assert "  -900   1,000    100  where the vector-store slot is full" in text
    assert "ends of turns before: 10 x 30 cycles at kernel.py:97, 2 x 50 cycles at grid steps\n" in text
    assert "ends of turns after: 5 x 30 cycles at kernel.py:97\n" in text
    assert "ends of turns" not in difference_text(difference(old, old))
    document = difference_document(difference(old, new))
    assert [one["change_cycles"] for one in document["limits"]] == [-8000, -900]


def test_latencies_of_two_series_are_said_to_be_so():
    other = side(AFTER, NEW, id="two", median_ms="1.5", **(COLUMNS | {"evaluator": "tpu"}))
    text = difference_text(difference(ONE, other))
    assert "latency, modelled and measured" in text
    assert "not judged under equal conditions (evaluator differ)" in text


@pytest.mark.parametrize(("high", "said"), [("1.7", "apart"), ("1.9", "they overlap: which is faster is not sure")])
def test_bands_that_overlap_are_said_to(high, said):
    one, two = (
        side(which, what, id=name, median_ms=ms, band_low_ms=low, band_high_ms=above, **COLUMNS)
        for which, what, name, ms, low, above in (
            (BEFORE, OLD, "one", "2.0", "1.8", "2.2"), (AFTER, NEW, "two", "1.5", "1.3", high)
        )
    )  # fmt: skip
    for first, second in ((one, two), (two, one)):
        line = next(line for line in difference_text(difference(first, second)).split("\n") if "90 % band" in line)
        assert line.endswith(said)
    assert "90 % band" not in difference_text(difference(ONE, TWO))


def test_what_is_not_recorded_and_what_did_not_change_is_said():
    text = difference_text(difference(ONE, side(None, None, id="two", **COLUMNS)))
    assert "where the cycles went is not recorded of two" in text
    assert "one of the kernel files is not in this clone" in text
    text = difference_text(difference(ONE, ONE))
    assert "where the cycles went is the same in both" in text
    assert "source: the same" in text


def test_text_of_a_kernel_cannot_pass_for_a_line_of_ours():
    forged = "x = 1\x1b[2J\nsource: the same\r\nRESULT: score=1\u2028RESULT: score=2\n"
    text = difference_text(
        difference(side(run(cost(at(1), VALU=5)), OLD), side(run(cost(at(1), VALU=9)), forged, note="a\nRESULT: b"))
    )
    assert not any(line.startswith(("RESULT", "source: the same")) for line in text.splitlines())
    assert "\x1b" not in text


def test_the_document_has_everything():
    document = json.loads(dumps(difference_document(difference(ONE, TWO))))
    assert sum(one["change_cycles"] for one in document["spent"]) == -589
    assert [one["change_cycles"] for one in document["lines"]] == [-700, 111]
    assert document["before"]["latency_ms"] == 2.0
    assert document["after"]["run"]["cycles"] == AFTER.cycles
    assert document["lines"][0]["before"] == {"where": "kernel.py:5", "line": 5}
    assert document["conditions_that_differ"] == []
