"""What each stage took, refused and saved."""

from __future__ import annotations

import ast

from ratchet.values import Step
from ratchet.values.status import Status
from ratchet.view.terminal import STAGES, report, stages
from tests.imports import HERE

from .timelines import row, verdict


def step(name: str, seconds: float, status: Status = Status.PASS) -> Step:
    return Step(name=name, status=status, seconds=seconds, summary="")


def test_stages_are_those_of_prepare_in_its_order() -> None:
    calls = [node for node in ast.walk(ast.parse((HERE / "prepare.py").read_text())) if isinstance(node, ast.Call)]
    named = [
        (call.lineno, call.args[0].value)
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("run", "begin")
        and isinstance(call.args[0], ast.Constant)
    ]
    names = [name for _, name in sorted(named)]
    measured = ("incumbent", "measure")
    rest = [name for name in dict.fromkeys(names) if name not in measured]
    # values are begun before the compiler, beside which they run, and count behind it
    rest.remove("correctness")
    rest.insert(rest.index("schedule"), "correctness")
    assert tuple(rest) == STAGES


def test_a_verdict_that_passed_every_stage_is_not_worth_a_line() -> None:
    passed = verdict(steps=tuple(step(name, 0.5) for name in STAGES), seconds=1.25)
    assert stages(passed, row(seconds="9.0")) == []
    assert "  stages " not in report(passed, decision="kept", reason="better", id="e1")


def test_what_refused_what_was_left_out_and_what_it_saved() -> None:
    taken = (step("contract", 2.0), step("problem", 0.0), step("compile", 1.5, Status.VMEM_OVERFLOW))
    failed = verdict(Status.VMEM_OVERFLOW, steps=taken, seconds=3.75, footprint=None, parity=None)
    assert stages(failed, row(seconds="9.5")) == [
        "3.8 s: contract 2.0 · compile refused after 1.5",
        "left out: memory, copies, kernel, correctness, schedule, control, roofline, audit · "
        "5.8 s less than the 9.5 s of the incumbent's verdict",
    ]
    assert stages(failed)[1].endswith("roofline, audit"), "without an incumbent nothing is said to be saved"
    assert stages(failed, row(seconds="2.0"))[1].endswith("roofline, audit")


def test_values_that_were_not_waited_for() -> None:
    taken = tuple(
        step(name, 1.0, Status.UNCHECKED if name == "correctness" else Status.PASS)
        for name in STAGES
        if name != "control"
    )
    late = verdict(Status.UNCHECKED, steps=taken, seconds=4.0, parity=None)
    said = stages(late, row(seconds="8.0"))
    assert "correctness not checked, ended after 1.0" in said[0]
    assert said[1] == "left out: control · 4.0 s less than the 8.0 s of the incumbent's verdict"
    text = report(late, decision="reverted", reason="too slow", id="e1", incumbent=row(seconds="8.0"))
    assert "  stages       4.0 s: contract 1.0" in text
    assert "left out: control" in text
