"""A search over edits: what it proposes by what came of earlier ones, and that it goes on from a ledger."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ratchet.advise.advice import Edit
from ratchet.advise.advise import program
from ratchet.advise.prediction import Prediction
from ratchet.commands import options
from ratchet.commands import search as commands
from ratchet.exam.judge.request import Request
from ratchet.search.evolve import AS_IT_IS, FAILED, HOW, Edits, Gene, expected
from ratchet.search.run import result_of
from ratchet.search.space import Observation, space_of
from ratchet.search.study import opened
from ratchet.values import Decision, Point, Row, Score, Verdict
from ratchet.values.status import Refusal, Status
from tests.advise.sources import ATTENTION, edits, run
from tests.extras import needs
from tests.loop.stage import Stage
from tests.search import fakes
from tests.tiers import slow_but
from tests.view.timelines import verdict

NAME = "other.py"


def latency_ms(text: str) -> float | None:
    """Wider statistics and exponentials to base 2 help, and more together; long blocks need too much memory."""
    if "ALONG = 512" in text:
        return 3.9 if "vmem_limit_bytes" in text else None
    ms = 4.0
    for written, factor in (("128), np.float32", 0.8), ("exp2", 0.9), ("ACROSS = 128", 0.7), ("STRIP", 1.3)):
        ms *= factor if written in text else 1.0
    return ms * (0.6 if "exp2" in text and "ACROSS = 128" in text else 1.0)


def bred(trials: int, batch: int = 4, course: Edits | None = None) -> tuple[Edits, list[Observation]]:
    """A search whose trials come to what ``latency_ms`` says."""
    course = course or Edits(start=ATTENTION.encode(), name=NAME)
    seen: list[Observation] = []
    while len(seen) < trials and (candidates := course.propose(seen, min(batch, trials - len(seen)))):
        for one in candidates:
            ms = latency_ms(one.text.decode())
            status = Status.UNCHECKED if ms else Status.VMEM_OVERFLOW
            seen.append(Observation(point=one.point, status=status, latency_ms=ms))
    return course, seen


def test_edits_that_helped_are_put_together() -> None:
    course, seen = bred(40)
    assert seen[0].point == {HOW: AS_IT_IS}
    best = min(range(40), key=lambda at: seen[at].latency_ms or 9)
    text = course.versions[best].text.decode()
    assert seen[best].latency_ms == pytest.approx(4 * 0.8 * 0.9 * 0.7 * 0.6)
    kinds = {one.edit for one in course.versions[best].genes}
    assert kinds >= {Edit.BASE_2, Edit.LARGER}
    assert kinds & {Edit.WIDE, Edit.LANES}, "late sums are wide, too"
    assert "ACROSS = 128" in text
    assert len({one.program for one in course.versions}) == 40, "no version is tried twice"


def test_the_same_trials_give_the_same_proposals_and_an_interrupted_course_goes_on() -> None:
    _, whole = bred(25)
    course, seen = bred(13)
    assert seen == whole[:13]
    course.propose(seen, 4)
    again = [one.point for one in course.propose(seen, 4)]  # the first answer was never judged
    assert again == [one.point for one in whole[13:17]]


def test_what_was_refused_is_tried_last() -> None:
    _, seen = bred(60)
    refused = [at for at, one in enumerate(seen) if one.latency_ms is None]
    assert refused
    assert len(refused) < 8


def test_what_overflowed_is_tried_under_a_higher_limit() -> None:
    course, seen = bred(60)
    (first, *_) = (at for at, one in enumerate(seen) if one.latency_ms is None)
    higher = [at for at, one in enumerate(course.versions) if "ALONG 512 under a higher VMEM limit" in one.title]
    assert higher
    assert first < min(higher)
    assert b"vmem_limit_bytes" in course.versions[higher[0]].text


def test_a_constant_that_is_set_again_takes_the_place_of_its_first_value() -> None:
    course, _ = bred(40)
    for version in course.versions:
        names = [name for gene in version.genes for name in gene.names]
        assert len(names) == len(set(names))
    title = next(one.title for one in course.versions if len(one.genes) > 2)
    assert title.count(" + ") >= 2


def test_constants_of_a_space_are_changed_too() -> None:
    space = space_of(ATTENTION.encode(), NAME, ["WIDTH=128,64"], [])
    course, _ = bred(40, course=Edits(start=ATTENTION.encode(), name=NAME, space=space))
    assert any(b"WIDTH = 64" in one.text for one in course.versions)
    assert all(
        b"WIDTH = 64" not in one.text or Gene(edit=None, subject="", point=(("WIDTH", 64),)) in one.genes
        for one in course.versions
    )


def test_a_file_without_a_pattern_ends_at_once() -> None:
    course, seen = bred(9, course=Edits(start=b"A = 1\n", name=NAME))
    assert len(seen) == 1
    assert course.propose([dataclasses.replace(seen[0], latency_ms=1.0)], 4) == ()


def test_what_is_known_of_the_edits_says_which_come_first() -> None:
    (scale,), (wide,) = edits(ATTENTION, Edit.SCALE), edits(ATTENTION, Edit.WIDE)
    score = dataclasses.replace(verdict().score, latency_ms=2.0)  # type: ignore[type-var]
    base = Prediction(status=Status.UNCHECKED, reason="", score=score)
    twice = dataclasses.replace(base, score=dataclasses.replace(score, latency_ms=1.0))
    known = {
        program(ATTENTION.encode()): base,
        program(wide.after): twice,
        program(scale.after): dataclasses.replace(base, status=Status.COMPILE_FAILED, score=None),
    }
    found = expected(ATTENTION.encode(), NAME, run(NAME), known)
    assert found[Gene.of(wide)] == pytest.approx(-0.6931, abs=1e-3)
    assert found[Gene.of(scale)] == FAILED
    assert min(found, key=lambda one: found[one]) == Gene.of(wide)
    assert found[Gene(edit=Edit.LARGER, subject="ALONG", point=(("ALONG", 512),))] < 0, "as advise guesses"
    course = Edits(start=ATTENTION.encode(), name=NAME, first=expected(ATTENTION.encode(), NAME, None, known))
    _, seen = bred(2, course=course)
    assert seen[1].point == {HOW: "statistics as wide as the lanes top, total"}


def judge(request: Request, *, workers: object = None, progress: object = None) -> Verdict:
    ms = latency_ms(request.kernel.read_text())
    if ms is None:
        return fakes.made(request, Status.VMEM_OVERFLOW, "it is too large")
    status = Status.UNCHECKED if request.model_only else Status.PASS
    score = Score(score=100 / ms, latency_ms=ms, util_pct=50.0, tflops=1.0, regime="compute-bound", bw_util_pct=1.0)
    return fakes.made(request, status, "as its text says", score=score)


@pytest.mark.parametrize("interrupted", slow_but(1, [True, False]))
@needs("optuna")
def test_the_command_keeps_the_best_and_goes_on_where_it_was(
    fresh: Stage, capsys: pytest.CaptureFixture[str], interrupted: bool
) -> None:
    def call(budget: int) -> dict[str, Any]:
        given = options.ratchet(["search", "--how", "edits", "--json", "--budget", str(budget)])
        commands.search_command(
            given, root=fresh.root, kernel=fresh.root / "kernel.py", function=judge, say=lambda _line: None
        )
        return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]

    fresh.write(ATTENTION)
    fresh.git("commit", "-qam", "the kernel")
    if interrupted:
        call(13)
        assert len(fresh.rows()) == 13
    made = call(24)
    assert made["start"] == {HOW: AS_IT_IS}
    assert made["start_ms"] == 4.0
    assert len(made["trials"]) == len(fresh.rows()) == 24
    best = made["trials"][0]
    assert best["kept"]
    assert latency_ms(fresh.read()) == pytest.approx(best["latency_ms"])
    assert fresh.rows()[-1].note.startswith("search: ")
    again = call(24)
    assert again["trials"] == made["trials"]
    assert len(fresh.rows()) == 24, "nothing is judged twice"
    further = call(28)
    assert len(further["trials"]) == len(fresh.rows()) == 28


@needs("optuna")
def test_one_that_is_struck_in_the_middle_of_a_batch_goes_on(
    fresh: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """HEAD's kernel is a version of the search by then, of which the search has no observation yet."""

    def call() -> None:
        given = options.ratchet(["search", "--how", "edits", "--json", "--budget", "24"])
        commands.search_command(
            given, root=fresh.root, kernel=fresh.root / "kernel.py", function=judge, say=lambda _line: None
        )

    def struck(point: Point, row: Row) -> Observation:
        if row.decision == Decision.KEPT:
            raise KeyboardInterrupt
        return result_of(point, row)

    fresh.write(ATTENTION)
    fresh.git("commit", "-qam", "the kernel")
    with monkeypatch.context() as patched:
        patched.setattr(commands, "result_of", struck)
        with pytest.raises(Refusal, match="the same command goes on"):
            call()
    assert latency_ms(fresh.read()) != 4.0, "something was kept in the batch that was struck"
    call()
    made = json.loads(capsys.readouterr().out)
    assert (made["start_ms"], len(made["trials"]), len(fresh.rows())) == (4.0, 24, 24)


def test_the_conditions_of_a_space_hold_for_versions_too() -> None:
    space = space_of(ATTENTION.encode(), NAME, ["WIDTH=128,64"], ["ACROSS <= 64", "WIDTH != 64"])
    course, _ = bred(40, course=Edits(start=ATTENTION.encode(), name=NAME, space=space))
    assert not any(b"ACROSS = 128" in one.text or b"WIDTH = 64" in one.text for one in course.versions)


@needs("optuna")
def test_a_kernel_that_was_edited_by_hand_begins_another_search(fresh: Stage) -> None:
    began, later = (
        {Gene(edit=Edit.LARGER, subject="A", point=(("A", 2), ("B", None))): did, Gene(edit=None, subject=""): 1.0}
        for did in (-0.5, 0.5)
    )
    with opened(fresh.root, "edits") as study:
        assert study.origin(b"A = 1", program, lambda _: began) == (b"A = 1", began)
        study.came_to([program(b"A = 1"), program(b"A = 2")])
    with opened(fresh.root, "edits") as study:
        assert study.origin(b"A = 2  # kept", program, lambda _: later) == (b"A = 1", began), "as it was then"
        assert study.origin(b"A = 3", program, lambda _: later) == (b"A = 3", later)
        assert study.origin(b"A = 2", program, lambda _: later) == (b"A = 2", later)
        study.library.set_user_attr("origin", ["whatever"])
        assert study.origin(b"A = 3", program, lambda _: began) == (b"A = 3", began)
