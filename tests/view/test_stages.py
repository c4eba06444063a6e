"""What each stage took, refused and saved."""

from __future__ import annotations

from ratchet.values import Step
from ratchet.values.status import Status
from ratchet.values.verdict import MODELLED_STEPS
from ratchet.view.terminal import report, stages

from .timelines import row, verdict


def step(name: str, seconds: float, status: Status = Status.PASS) -> Step:
    return Step(name=name, status=status, seconds=seconds, summary="")


def test_a_verdict_that_passed_every_stage_is_not_worth_a_line() -> None:
    passed = verdict(steps=tuple(step(name, 0.5) for name in MODELLED_STEPS), seconds=1.25)
    assert stages(passed, row(seconds="9.0")) == []
    assert "  stages " not in report(passed, decision="kept", reason="better", id="e1")


def test_what_refused_what_was_left_out_and_what_it_saved() -> None:
    taken = (step("contract", 2.0), step("problem", 0.0), step("compile", 1.5, Status.VMEM_OVERFLOW))
    failed = verdict(Status.VMEM_OVERFLOW, steps=taken, seconds=3.75, footprint=None, parity=None)
    left_out = ", ".join(MODELLED_STEPS[3:])
    assert stages(failed, row(seconds="9.5")) == [
        "3.8 s: contract 2.0 · compile refused after 1.5",
        f"left out: {left_out} · 5.8 s less than the 9.5 s of the incumbent's verdict",
    ]
    assert stages(failed)[1].endswith(left_out), "without an incumbent nothing is said to be saved"
    assert stages(failed, row(seconds="2.0"))[1].endswith(left_out)


def test_values_that_were_not_waited_for() -> None:
    taken = tuple(
        step(name, 1.0, Status.UNCHECKED if name == "correctness" else Status.PASS)
        for name in MODELLED_STEPS
        if name != "control"
    )
    late = verdict(Status.UNCHECKED, steps=taken, seconds=4.0, parity=None)
    said = stages(late, row(seconds="8.0"))
    assert "correctness not checked, ended after 1.0" in said[0]
    assert said[1] == "left out: control · 4.0 s less than the 8.0 s of the incumbent's verdict"
    text = report(late, decision="reverted", reason="too slow", id="e1", incumbent=row(seconds="8.0"))
    assert "  stages       4.0 s: contract 1.0" in text
    assert "left out: control" in text
