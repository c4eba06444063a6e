"""What is advised first, what it should save, and what earlier experiments say about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.advise.advice import Edit
from ratchet.advise.advise import Attempt, Run, advise, evidence, followed, program, records, saved
from ratchet.values.loss import MatrixBound
from ratchet.values.status import Status
from tests.advise.sources import ATTENTION, edits, file_of, run

RUN = run("other.py")


def attempt(before: str, after: bytes | str, **changes: object) -> Attempt:
    given = {
        "id": "one",
        "before": before.encode(),
        "after": after.encode() if isinstance(after, str) else after,
        "status": Status.PASS.name,
        "kept": True,
        "gain": 0.25,
        "here": True,
    }
    return Attempt(**(given | changes))  # type: ignore[arg-type]


def test_advice_is_ranked_by_what_it_is_worth_and_never_saves_more_than_there_is():
    advice = advise(file_of(ATTENTION), RUN, ())
    assert len(advice) > 4
    assert advice == advise(file_of(ATTENTION), RUN, ()), "the same kernel gets the same advice"
    assert [one.worth for one in advice] == sorted((one.worth for one in advice), reverse=True)
    bound = next(loss.ceiling_cycles for loss in RUN.blame.losses if isinstance(loss, MatrixBound))
    assert all(0 < one.saved_cycles <= RUN.cycles - bound for one in advice)
    assert all(one.latency_ms == (RUN.cycles - one.saved_cycles) / 1.5e9 * 1e3 for one in advice)
    assert all(one.confidence == 0.5 for one in advice)
    assert all(one.evidence for one in advice if one.rewrite.edit in (Edit.LARGER, Edit.RESIDENT))


def test_what_was_judged_is_not_advised_again_however_it_is_laid_out():
    first, second, *_ = advise(file_of(ATTENTION), RUN, ())
    spaced = first.rewrite.after.replace(b"TOKENS = 512", b"TOKENS  =  512  # as before")
    tried = attempt(ATTENTION, spaced, status=Status.NOT_BETTER.name, kept=False, gain=-0.1)
    results = [one.rewrite.after for one in advise(file_of(ATTENTION), RUN, (tried,))]
    assert first.rewrite.after not in results
    assert second.rewrite.after in results
    elsewhere = advise(file_of(ATTENTION), RUN, (replace(tried, here=False),))
    assert first.rewrite.after in [one.rewrite.after for one in elsewhere]


def test_the_ledgers_hindsight_is_counted_by_kind_of_edit():
    (scale,) = edits(ATTENTION, Edit.SCALE)
    (wide,) = edits(ATTENTION, Edit.WIDE)
    past = (
        attempt(ATTENTION, scale.after, kept=True, gain=0.1),
        attempt(ATTENTION, scale.after, kept=False, gain=-0.2),
        attempt(ATTENTION, wide.after, kept=False, gain=None),
        attempt(ATTENTION, ATTENTION + "print(1)\n"),
        attempt("not python (", "neither ("),
    )
    found = records(followed(past, "other.py"))
    assert {edit: (one.followed, one.kept, one.gains) for edit, one in found.items()} == {
        Edit.SCALE: (2, 1, (0.1,)),
        Edit.WIDE: (1, 0, ()),
    }
    assert found[Edit.WIDE].confidence == pytest.approx(1 / 3)


def test_an_edit_that_lost_on_another_version_counts_half():
    before = ATTENTION.replace("ACROSS = 64", "ACROSS = 128")
    (narrow,) = edits(before, Edit.WIDE)
    tried = attempt(before, narrow.after, status=Status.NOT_BETTER.name, kept=False, id="lost")
    advice = {one.rewrite.edit: one for one in advise(file_of(ATTENTION), RUN, (tried,))}
    assert advice[Edit.WIDE].lost_before == ("lost",)
    assert advice[Edit.WIDE].confidence == pytest.approx(1 / 3 / 2)
    assert not advice[Edit.SCALE].lost_before


def test_a_block_that_overflowed_is_advised_once_more_under_a_higher_limit():
    (larger,) = [one for one in edits(ATTENTION, Edit.LARGER) if one.point == {"ACROSS": 128}]
    tried = attempt(ATTENTION, larger.after, status=Status.VMEM_OVERFLOW.name, kept=False, gain=None)
    advice = advise(file_of(ATTENTION), RUN, (tried,))
    (raised,) = [one for one in advice if one.rewrite.edit is Edit.VMEM]
    assert b"ACROSS = 128" in raised.rewrite.after
    assert b"vmem_limit_bytes=100 << 20" in raised.rewrite.after
    points = [one.rewrite.point for one in advice if one.rewrite.edit is Edit.LARGER]
    assert {"ACROSS": 256} not in points
    assert {"ALONG": 512} in points


def test_versions_that_are_no_python_differ_by_their_bytes():
    assert program(b"(") != program(b"((")
    assert program(b"x = 1") == program(b"x  =  1  # one")


def test_an_edit_saves_what_its_lines_cost():
    (scale,) = edits(ATTENTION, Edit.SCALE)
    line = RUN.blame.lines[0]
    cost = replace(
        line, place=replace(line.place, line=scale.lines[0]), issue_cycles={"VALU": 700, "MXU": 300}, cycles=1000
    )  # type: ignore[type-var]
    dear = Run(timeline=replace(RUN, blame=replace(RUN.blame, lines=(cost,))), file="other.py")
    assert saved(dear, scale) == 700
    (shown,) = evidence(dear, scale)
    assert (shown.cycles, shown.line) == (1000, scale.lines[0])
    other = Run(timeline=dear.timeline, file="another.py")
    assert saved(other, scale) == 0
    assert evidence(other, scale) == ()


def test_a_run_without_losses_gets_no_advice():
    still = replace(RUN, blame=replace(RUN.blame, lines=(), losses=()))
    assert {one.rewrite.edit for one in advise(file_of(ATTENTION), still, ())} <= {Edit.SKIP}


def test_two_edits_that_lost_little_are_advised_together():
    (scale,) = edits(ATTENTION, Edit.SCALE)
    (wide,) = edits(ATTENTION, Edit.WIDE)
    lost = {"status": Status.NOT_BETTER.name, "kept": False}
    near = (attempt(ATTENTION, scale.after, **lost, gain=-0.02), attempt(ATTENTION, wide.after, **lost, gain=-0.03))
    pairs = [one for one in advise(file_of(ATTENTION), RUN, near) if one.rewrite.edit is Edit.PAIR]
    (both,) = {one.rewrite.after for one in pairs}
    assert b"0.125)).astype(one.dtype)" in both
    assert both.count(b"tpu.VMEM((ACROSS, 128), np.float32)") == 2
    far = (near[0], replace(near[1], gain=-0.2))
    assert [one for one in advise(file_of(ATTENTION), RUN, far) if one.rewrite.edit is Edit.PAIR] == []
    assert followed((attempt(ATTENTION, both),), "other.py") == ()
