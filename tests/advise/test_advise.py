"""What is advised first, what it should save, and what earlier experiments say about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.advise.advice import Edit
from ratchet.advise.advise import Attempt, Run, advise, evidence, followed, program, records, saved
from ratchet.advise.prediction import Fate, Outlook, Prediction, outlook
from ratchet.values import Band
from ratchet.values.loss import MatrixBound
from ratchet.values.status import Status
from tests.advise.sources import ATTENTION, edits, file_of, run
from tests.view.timelines import verdict

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


def test_edits_are_in_an_order_and_none_is_about_more_than_there_is():
    advice = advise(file_of(ATTENTION), RUN, ())
    assert len(advice) > 4
    assert advice == advise(file_of(ATTENTION), RUN, ()), "the same kernel gets the same advice"
    assert [one.worth for one in advice] == sorted((one.worth for one in advice), reverse=True)
    bound = next(loss.ceiling_cycles for loss in RUN.blame.losses if isinstance(loss, MatrixBound))
    assert all(0 <= one.saved_cycles <= RUN.cycles - bound for one in advice)
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


def test_edits_that_no_loss_speaks_for_come_last():
    still = replace(RUN, blame=replace(RUN.blame, lines=(), losses=()))
    advice = advise(file_of(ATTENTION), still, ())
    assert {one.rewrite.after for one in advice} == {one.rewrite.after for one in advise(file_of(ATTENTION), RUN, ())}
    assert {one.rewrite.edit for one in advice if one.saved_cycles} == {Edit.SKIP} & {
        one.rewrite.edit for one in advice
    }


def prediction(latency_ms: float | None, status: Status = Status.UNCHECKED, run: str = "") -> Prediction:
    score = None
    if latency_ms is not None:
        score = replace(verdict().score, latency_ms=latency_ms, wait_ms=0.0, band=None)
    return Prediction(status=status, reason="as it is said", score=score, program=run)


def no_faster(attempts: tuple[Attempt, ...]) -> dict[str, Prediction]:
    """Every edit that was not attempted modelled as half as fast, larger blocks as too large, and raised ones, too."""
    known = {program(ATTENTION.encode()): prediction(1.0, run="base")}
    while new := [
        one for one in advise(file_of(ATTENTION), RUN, attempts, known) if program(one.rewrite.after) not in known
    ]:
        if any(one.rewrite.edit is Edit.PAIR for one in new):
            break
        for one in new:
            full = one.rewrite.edit is Edit.LARGER
            known[program(one.rewrite.after)] = prediction(None, Status.VMEM_OVERFLOW) if full else prediction(2.0)
    return known


def test_what_is_modelled_as_a_little_slower_is_tried_together_once_nothing_alone_is_faster():
    known = no_faster(())
    (scale,), (wide,) = edits(ATTENTION, Edit.SCALE), edits(ATTENTION, Edit.WIDE)
    assert [one for one in advise(file_of(ATTENTION), RUN, (), known) if one.rewrite.edit is Edit.PAIR] == []
    near = {program(scale.after): prediction(1.01), program(wide.after): prediction(1.02)}
    pairs = [one for one in advise(file_of(ATTENTION), RUN, (), known | near) if one.rewrite.edit is Edit.PAIR]
    assert b"0.125)).astype(one.dtype)" in pairs[0].rewrite.after
    assert b"tpu.VMEM((ACROSS, 128), np.float32)" in pairs[0].rewrite.after
    faster = {program(wide.after): prediction(0.9)}
    assert [
        one for one in advise(file_of(ATTENTION), RUN, (), known | near | faster) if one.rewrite.edit is Edit.PAIR
    ] == []
    missing = {
        name: one for name, one in (known | near).items() if name != program(edits(ATTENTION, Edit.STRIPS)[0].after)
    }
    assert [one for one in advise(file_of(ATTENTION), RUN, (), missing) if one.rewrite.edit is Edit.PAIR] == []


def test_an_edit_that_needs_another_one_is_tried_with_it():
    """A strip can be made larger once there are strips."""
    known = no_faster(())
    (strips,) = edits(ATTENTION, Edit.STRIPS)
    assert [one for one in advise(file_of(ATTENTION), RUN, (), known) if b"STRIP" in one.rewrite.after] == [
        one for one in advise(file_of(ATTENTION), RUN, (), known) if one.rewrite.after == strips.after
    ]
    near = {program(strips.after): prediction(1.03)}
    pairs = [one for one in advise(file_of(ATTENTION), RUN, (), known | near) if one.rewrite.edit is Edit.PAIR]
    assert {b"STRIP = 16" in one.rewrite.after for one in pairs} == {False, True}
    assert all(strips.subject in one.rewrite.subject for one in pairs)


def test_a_block_that_is_modelled_as_too_large_is_tried_under_a_higher_limit_and_no_larger_one():
    (larger,) = [one for one in edits(ATTENTION, Edit.LARGER) if one.point == {"ACROSS": 128}]
    known = {program(larger.after): prediction(None, Status.VMEM_OVERFLOW)}
    advice = advise(file_of(ATTENTION), RUN, (), known)
    assert b"vmem_limit_bytes=100 << 20" in next(one for one in advice if one.rewrite.edit is Edit.VMEM).rewrite.after
    assert {"ACROSS": 256} not in [one.rewrite.point for one in advice if one.rewrite.edit is Edit.LARGER]


def sorted_out(known: dict[str, Prediction]) -> Outlook:
    every = advise(file_of(ATTENTION), RUN, ())
    return outlook(every, known, known.get(program(ATTENTION.encode())), program)


def test_only_what_counts_as_faster_is_advice_fastest_first_and_every_edit_is_somewhere():
    every = advise(file_of(ATTENTION), RUN, ())
    names = [program(one.rewrite.after) for one in every]
    known = {
        program(ATTENTION.encode()): prediction(1.0, run="base"),
        names[0]: prediction(0.9, run="a"),
        names[1]: prediction(0.8, run="b"),
        names[2]: prediction(0.8, run="b"),
        names[3]: prediction(1.0, run="base"),
        names[4]: prediction(1.1, run="c"),
        names[5]: prediction(0.5, Status.WRONG_VALUES, run="d"),
        names[6]: prediction(None, Status.COMPILE_FAILED),
    }
    found = sorted_out(known)
    assert [one.advice for one in found.advice] == [every[1], every[0]]
    assert {one.advice.rewrite.after: one.fate for one in found.tried} == {
        every[2].rewrite.after: Fate.TWIN,
        every[3].rewrite.after: Fate.SAME,
        every[4].rewrite.after: Fate.SLOWER,
        every[5].rewrite.after: Fate.WRONG,
    }
    assert next(one.twin for one in found.tried if one.fate is Fate.TWIN) == every[1]
    assert [(one.advice, one.why) for one in found.failed] == [(every[6], "as it is said")]
    assert found.unreached == every[7:]


def test_nothing_is_advice_before_the_file_as_it_is_was_modelled():
    first = advise(file_of(ATTENTION), RUN, ())[0]
    found = sorted_out({program(first.rewrite.after): prediction(0.1)})
    assert found.base is None
    assert found.advice == ()
    assert len(found.unreached) == len(advise(file_of(ATTENTION), RUN, ()))


def test_a_gain_that_only_trades_issuing_for_waiting_is_no_advice():
    first, second, *_ = advise(file_of(ATTENTION), RUN, ())
    band = {"band": Band(bound_by="compute", low_ms=0.9, high_ms=1.1)}

    def banded(latency_ms: float, wait_ms: float) -> Prediction:
        one = prediction(latency_ms)
        return replace(one, score=replace(one.score, wait_ms=wait_ms, **band))

    known = {
        program(ATTENTION.encode()): banded(1.0, 0.5),
        program(first.rewrite.after): banded(0.99, 0.6),
        program(second.rewrite.after): banded(0.99, 0.5),
    }
    found = sorted_out(known)
    assert [one.advice for one in found.advice] == [second]
    assert [(one.advice, one.fate) for one in found.tried] == [(first, Fate.SAME)]


def test_two_edits_that_lost_little_are_advised_together():
    (scale,) = edits(ATTENTION, Edit.SCALE)
    (wide,) = edits(ATTENTION, Edit.WIDE)
    lost = {"status": Status.NOT_BETTER.name, "kept": False}
    near = (attempt(ATTENTION, scale.after, **lost, gain=-0.02), attempt(ATTENTION, wide.after, **lost, gain=-0.03))
    assert [one for one in advise(file_of(ATTENTION), RUN, near) if one.rewrite.edit is Edit.PAIR] == []
    others = no_faster(near)
    pairs = [one for one in advise(file_of(ATTENTION), RUN, near, others) if one.rewrite.edit is Edit.PAIR]
    (both,) = {one.rewrite.after for one in pairs if b"0.125)).astype(one.dtype)" in one.rewrite.after}
    assert both.count(b"tpu.VMEM((ACROSS, 128), np.float32)") == 2
    far = (near[0], replace(near[1], gain=-0.2))
    assert [one for one in advise(file_of(ATTENTION), RUN, far, others) if one.rewrite.edit is Edit.PAIR] == []
    assert followed((attempt(ATTENTION, both),), "other.py") == ()
