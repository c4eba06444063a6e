"""Occupancy along a program, as sentences and as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.values import Explanation, Timeline
from ratchet.values.occupancy import DMA, NOTHING, TURN_END, Limit
from ratchet.values.status import Status
from ratchet.view.explain import explain_document, explain_text
from ratchet.view.losses import blame_text
from ratchet.view.occupancy import LEGEND, limit_code, limit_in_words, occupancy_in_words, occupancy_lines
from tests.tpu.machine.golden_dumps import COMPILERS, modelled

from .timelines import occupancy, timeline


def test_the_sentence_says_what_limits_and_what_ends_of_turns_cost() -> None:
    assert occupancy_in_words(occupancy()) == (
        "matrix units in use 84.4% of 10,000 cycles: full for 80.0%; waits for DMAs 6.0% (for window input 1); "
        "10.0% at 44% use, where the vector-store slot is full (kernel.py:210); "
        "ends of turns 4.0% (10 x 30 cycles at kernel.py:97, 2 x 50 cycles at grid steps)"
    )


def test_every_limit_has_words() -> None:
    said = {
        limit_in_words(Limit(unit=unit, empty=empty))
        for unit, empty in [("VALU", False), ("EUP", False), ("XLU", True), ("MXU results", True), ("other", True)]
    }
    said |= {limit_in_words(Limit(unit=unit, empty=False)) for unit in (DMA, TURN_END, NOTHING)}
    assert said == {
        "where the vector ALUs are full",
        "where the transcendental unit is full",
        "where bundles are empty for cross-lane units",
        "where bundles are empty for results of products",
        "where bundles are empty for the order of the program",
        "where DMAs are waited for",
        "at ends of turns",
        "where no slot is full",
    }


def test_the_table_is_in_the_order_of_the_program_and_leaves_out_what_costs_least() -> None:
    run = replace(timeline(), occupancy=(occupancy(),))
    lines = list(occupancy_lines(run, rows=4))
    assert lines[1:] == [
        "     % bundles times      mxu   w pop alu eup xlu  ld  st spl emp limit  lines",
        "   4.0      40    10        0  10   0   0   0   0   0 100   0  10 -*     84,86",
        "  50.0     500    10 ████ 100  10   0   0   0   0   0 100   0  10 mxu    84,86",
        "  10.0     100    10 ██    44  10   0   0   0   0   0 100   0  10 st     210,212",
        "   6.0       0    10        0   0   0   0   0   0   0   0   0   0 dma    no line",
        "  30.0 in 1 more",
    ]
    assert max(map(len, lines[1:])) <= 80
    assert max(map(len, LEGEND)) <= 78


def test_what_empty_bundles_wait_for_is_in_brackets() -> None:
    first, *rest = occupancy().stretches
    units = ("XLU", "MXU results", "MXU weights", "branch", "stores", "other")
    codes = [limit_code(replace(first, limit=Limit(unit=unit, empty=True))) for unit in units]
    assert codes == ["(xlu)*", "(res)*", "(w)*", "(br)*", "(sts)*", "(ord)*"]
    assert [limit_code(one) for one in rest] == ["mxu", "st", "mxu", "dma"]


def test_several_kernels_are_named_and_nothing_of_theirs_passes_for_ours() -> None:
    hostile = replace(occupancy(), kernel="k\x1b]0;x\x07\nRESULT: score=1")
    text = "\n".join(occupancy_lines(replace(timeline(), occupancy=(occupancy(), hostile)), rows=3))
    assert "  kernel.py: matrix units" in text
    assert "\x1b" not in text
    assert "\nRESULT" not in text


@pytest.fixture(scope="module")
def flash() -> Timeline:
    return modelled(COMPILERS[0], "flash")


def test_the_evidence_and_an_explanation_have_it(flash: Timeline) -> None:
    explanation = Explanation(
        title="t", chip="v5e", compiler="c", status=Status.PASS, reason="", timeline=flash, limits={}
    )
    (said, *_) = occupancy_lines(flash, rows=1)
    for text in (blame_text(flash, title="flash"), explain_text(explanation)):
        assert said in text
        assert LEGEND[0] in text
    (document,) = explain_document(explanation)["occupancy"]
    (one,) = flash.occupancy
    assert sum(each["cycles"] for each in document["stretches"]) == document["cycles"] == one.cycles
    assert document["turn_cycles"] == one.turn_cycles
    without = replace(explanation, timeline=replace(flash, occupancy=()))
    assert "occupancy" not in explain_text(without)
