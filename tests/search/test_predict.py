"""Edits of a small kernel compiled and modelled before they are advised, by the judge itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from prepare import judge
from ratchet.advise.advice import Advice, Edit, Record, Rewrite
from ratchet.advise.advise import program
from ratchet.advise.prediction import Fate, Outlook, outlook
from ratchet.exam.judge.request import Request
from ratchet.exam.problem.problem import encode, lock_path
from ratchet.process import key
from ratchet.search.predict import Known, Predictor
from ratchet.search.predictions import Kept
from ratchet.search.sweep import Sweep
from ratchet.tpu.chips import V5E
from ratchet.values import Conditions, Verdict
from ratchet.values.status import Status
from tests.exam.judge.programs import examined
from tests.kernels import ATTENTION, edited

CONDITIONS = Conditions(evaluator="v5e-model", chip="v5e", compiler="", seal="", problem="")
EDITS = {
    "slower": ("BKV = 256", "BKV = 128"),
    "wrong": ("        ) * (HEAD_DIM**-0.5)", "        ) * (HEAD_DIM**-0.25)"),
    "faster": ("BQ = 128", "BQ = 256"),
    "twin": ("BQ = 128", "BQ = 2 * 128"),
    "refused": ("BQ = 128", "BQ = 100"),
}
SLOW, WRONG, FAST, TWIN, REFUSED = (
    edited(edited(ATTENTION, EDITS["faster"]) if name == "wrong" else ATTENTION, change).encode()
    for name, change in EDITS.items()
)


def advice(after: bytes) -> Advice:
    return Advice(
        rewrite=Rewrite(edit=Edit.LARGER, after=after, lines=()),
        evidence=(),
        saved_cycles=0,
        confidence=0.5,
        record=Record(),
    )


def find(known: Known) -> Outlook:
    edits = [advice(one) for one in (SLOW, WRONG, FAST, TWIN, REFUSED)]
    return outlook(edits, known, known.get(program(ATTENTION.encode())), program)


@pytest.fixture
def predictor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Predictor]:
    monkeypatch.setattr(key, "path", lambda: tmp_path / "home" / "key")
    root = tmp_path / "repository"
    root.mkdir()
    kernel = root / "kernel.py"
    kernel.write_text(ATTENTION)
    lock_path(kernel).write_bytes(encode(examined(ATTENTION)[1]))
    sweep = Sweep(
        kernel=kernel, root=root, kernel_rel="kernel.py", conditions=CONDITIONS, chip=V5E, judge=judge, lanes=1
    )
    kept = Kept(root=root, kernel="kernel.py", conditions=CONDITIONS)
    yield Predictor(source=ATTENTION.encode(), sweep=sweep, kept=kept, find=find)
    assert kernel.read_text() == ATTENTION


def test_an_edit_is_advice_only_if_it_compiles_is_faster_and_right(predictor: Predictor) -> None:
    """The fastest is wrong, which checking its values shows; its place is the next one's."""
    found = predictor.run(600)
    assert [one.advice.rewrite.after for one in found.advice] == [FAST]
    assert found.advice[0].prediction.status is Status.PASS
    assert {one.advice.rewrite.after: one.fate for one in found.tried} == {
        SLOW: Fate.SLOWER,
        WRONG: Fate.WRONG,
        TWIN: Fate.TWIN,
    }
    assert next(one.why for one in found.tried if one.fate is Fate.WRONG)
    (refused,) = found.failed
    assert refused.advice.rewrite.after == REFUSED
    assert refused.why
    assert found.unreached == ()

    def again(_request: Request, *, workers: object = None, progress: object = None) -> Verdict:
        raise AssertionError("everything is known")

    other = Predictor(
        source=predictor.source,
        sweep=Sweep(**{**vars(predictor.sweep), "judge": again}),
        kept=predictor.kept,
        find=find,
    )
    assert other.run(600) == found == other.known()


def test_nothing_new_is_begun_once_the_budget_is_spent(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that a verdict moves: of the budget two thirds are for modelling, the rest for values."""
    now = [100.0]
    asked: list[bool] = []

    def counted(request: Request, *, workers: object = None, progress: object = None) -> Verdict:
        asked.append(request.model_only)
        now[0] += 10
        verdict = judge(request, workers=workers)  # type: ignore[arg-type]
        return verdict

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    short = Predictor(
        source=predictor.source,
        sweep=Sweep(**{**vars(predictor.sweep), "judge": counted}),
        kept=predictor.kept,
        find=find,
    )
    found = short.run(60)
    assert asked == [True, True, True, True, False, False]
    assert [one.advice.rewrite.after for one in found.advice] == [FAST]
    assert [one.rewrite.after for one in found.unreached] == [TWIN, REFUSED]
