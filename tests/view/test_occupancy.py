"""Occupancy along a program, as sentences and as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.values import Explanation, Timeline
from ratchet.values.occupancy import DMA, NOTHING, TURN_END, Limit, Limited, Occupancy, Stretch, Turns
from ratchet.values.place import Code, SourceLine, Window, Windows
from ratchet.values.status import Status
from ratchet.view.explain import explain_document, explain_text
from ratchet.view.losses import blame_text
from ratchet.view.occupancy import LEGEND, limit_in_words, occupancy_in_words, occupancy_lines
from tests.tpu.machine.golden_dumps import COMPILERS, modelled

from .timelines import timeline

FULL, STORES, NONE = (Limit(unit=unit, empty=False) for unit in ("MXU", "VSTORE", NOTHING))


def at(line: int) -> SourceLine:
    return SourceLine(file="kernel.py", line=line)


def stretch(begin: int, cycles: int, use: float, limit: Limit, *, turn_end: bool = False, line: int = 84) -> Stretch:
    busy = round(10 * cycles * use)
    return Stretch(
        begin=begin,
        end=begin + cycles,
        executions=10,
        bundles=10 * cycles,
        empty=cycles,
        wait_cycles=0,
        busy=busy,
        products=busy // 4,
        weights=cycles,
        issues={"MXU": busy // 4, "VSTORE": 10 * cycles},
        used={"MXU": busy, "VSTORE": 10 * cycles},
        waits={"XLU": cycles},
        limit=limit,
        turn_end=turn_end,
        lines=(at(line), at(line + 2)),
    )


def occupancy() -> Occupancy:
    """Full for 80 %, the store slot in 10 %, ends of turns for 4 %, DMAs for 6 %."""
    waiting = replace(stretch(960, 0, 0, Limit(unit=DMA, empty=False)), wait_cycles=600, lines=(Code.PIPELINE,))
    return Occupancy(
        kernel="kernel_0.3",
        unit="MXU",
        cycles=10_000,
        stretches=(
            stretch(0, 40, 0, NONE, turn_end=True),
            stretch(40, 500, 1, FULL),
            stretch(540, 100, 0.44, STORES, line=210),
            stretch(640, 300, 1, FULL),
            waiting,
        ),
        limits=(
            Limited(limit=FULL, cycles=8000, busy=8000, place=at(84)),
            Limited(limit=STORES, cycles=1000, busy=440, place=at(210)),
            Limited(
                limit=Limit(unit=DMA, empty=False),
                cycles=600,
                busy=0,
                place=Windows(windows=(Window(kind="input", number=1),)),
            ),
            Limited(limit=Limit(unit=TURN_END, empty=False), cycles=400, busy=0, place=at(84)),
        ),
        turns=(
            Turns(place=at(97), begin=0, end=1000, turns=10, cycles=300),
            Turns(place=Code.PIPELINE, begin=0, end=1100, turns=2, cycles=100),
        ),
    )


def test_the_sentence_says_what_limits_and_what_ends_of_turns_cost() -> None:
    assert occupancy_in_words(occupancy()) == (
        "matrix units in use 84.4% of 10,000 cycles: full for 80.0%; waits for DMAs 6.0% (for window input 1); "
        "10.0% at 44% use, where the vector-store slot is full (kernel.py:210); "
        "ends of turns 4.0% (10 x 30 cycles at kernel.py:97, 2 x 50 cycles at grid steps)"
    )


def test_every_limit_has_words() -> None:
    said = {
        limit_in_words(Limit(unit=unit, empty=empty))
        for unit, empty in [("VALU", False), ("EUP", False), ("XLU", True), ("?", True), ("other", True)]
    }
    said |= {limit_in_words(Limit(unit=unit, empty=False)) for unit in (DMA, TURN_END, NOTHING)}
    assert said == {
        "where the vector ALUs are full",
        "where the transcendental unit is full",
        "where bundles are empty for cross-lane units",
        "where bundles are empty for results",
        "where bundles are empty for other",
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


def test_several_kernels_are_named_and_nothing_of_theirs_passes_for_ours() -> None:
    hostile = replace(occupancy(), kernel="k\x1b]0;x\x07\nRESULT: score=1")
    text = "\n".join(occupancy_lines(replace(timeline(), occupancy=(occupancy(), hostile)), rows=3))
    assert "  kernel_0.3: matrix units" in text
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
