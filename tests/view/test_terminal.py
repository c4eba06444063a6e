"""What a person sees, and that nobody else can write it."""

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from rich.text import Text

from ratchet.values import Claim, Copy, ProblemCost, Step, Timeline
from ratchet.values.omission import OpenSemaphore
from ratchet.values.status import Status
from ratchet.values.verdict import MODELLED_STEPS
from ratchet.view.ledger import entries, log_table
from ratchet.view.losses import blame_text
from ratchet.view.status import show, status_text
from ratchet.view.streams import Progress
from ratchet.view.terminal import report, result_line, stages

from .test_history import state
from .test_text import FORBIDDEN, NASTY
from .timelines import blame, row, timeline, verdict

# --- the RESULT line and the report ------------------------------------------------------------


def test_result_line_with_and_without_a_score() -> None:
    score = verdict().score
    scored = "RESULT: score=1234.5 latency=2.5000ms util=30.25% tflops=59.50"
    unscored = "RESULT: score=none latency=none util=none tflops=none"
    assert result_line(score, decision="kept", status=Status.PASS) == f"{scored} decision=kept"
    lost = {"decision": "reverted", "status": Status.NOT_BETTER}
    assert result_line(score, **lost) == f"{scored} decision=reverted status=NOT_BETTER"
    assert result_line(None, **lost) == f"{unscored} decision=reverted status=NOT_BETTER"
    why = 'NOT_BETTER: slower: "all" of it; score 1 is below 2'
    assert (
        result_line(None, **lost, why=why)
        == f"{unscored} decision=reverted status=NOT_BETTER why=\"slower: 'all' of it\""
    )


def test_report_of_a_kept_kernel() -> None:
    text = report(
        verdict(steps=tuple(step(name, 0.5) for name in MODELLED_STEPS)),
        decision="kept",
        reason="better",
        id="e1",
        commit="c" * 40,
        incumbent=row(score="1000", median_ms="3.0", commit="0123456789abcdef"),
    )
    for said in (
        "PASS: judged correct",
        "2.5000 ms modelled",
        "modelled: no device was timed",
        "1.200x as fast as the incumbent at 012345678, 3.0000 ms: time -16.7 %",
        "30.25 % reached · compute-bound",
        "9.00 MiB of 16.00 MiB (56 %)",
        "12 stores, 15 loads",
        "1 injected by the compiler (4.00 MiB)",
        "worst error 0.410 of its allowance",
        "3. 12 spill stores and 15 loads: the store slot is 50% busy, without them 25%",
        "VMEM: claimed 4.0 MiB, found 9.0 MiB",
        "kept: better",
        "hlo_dumps/e1 · profile_data/e1 · commit cccccccccccc",
    ):
        assert said in text
    assert "4. " not in text
    assert "(128, 64)" not in text, "a claim that agrees is not worth a line"
    lines = text.split("\n")
    assert 18 <= len(lines) <= 30
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize("width", [60, 80])
def test_a_report_fits_its_width(width: int) -> None:
    lines = report(verdict(), decision="kept", reason="better " * 40, id="e1", width=width).split("\n")
    assert max(map(len, lines[1:])) <= width


def test_report_of_a_failure_says_why_and_where() -> None:
    summary = "used 40 MiB\nlimit 16 MiB"
    step = Step(name="compile", status=Status.VMEM_OVERFLOW, seconds=1.25, summary=summary)
    failed = verdict(Status.VMEM_OVERFLOW, reason=f"compile: {summary}", steps=(step,), footprint=None, parity=None)
    text = report(failed, decision="reverted", reason=f"VMEM_OVERFLOW: compile: {summary}", id="e1")
    assert text.startswith("VMEM_OVERFLOW: ")
    assert "compile: used 40 MiB\n" in text
    assert "failed step  compile after 1.2 s\n" in text
    assert text.endswith("\n  decision     reverted: compile: used 40 MiB"), "last, before the RESULT line"
    assert text.count("limit 16 MiB") == 1
    assert "latency" not in text


def test_report_of_a_correct_kernel_that_is_not_better() -> None:
    text = report(verdict(), decision="reverted", reason="slower", id="e1", outcome=Status.NOT_BETTER)
    assert text.startswith("NOT_BETTER: correct, but not better")


def test_prefetches_are_not_blamed() -> None:
    prefetch = Copy(instruction="copy-start.1", kind="prefetch", injected=True, size_bytes=1 << 20, cause="to VMEM")
    text = report(verdict(copies=(prefetch,)), decision="kept", reason="", id="e1")
    assert "copies       1 prefetched (1.00 MiB)\n" in text
    assert "copies       none\n" in report(verdict(copies=()), decision="kept", reason="", id="e1")


# --- stages ------------------------------------------------------------------------------------


def step(name: str, seconds: float, status: Status = Status.PASS) -> Step:
    return Step(name=name, status=status, seconds=seconds, summary="")


def test_a_verdict_that_passed_every_stage_is_not_worth_a_line() -> None:
    passed = verdict(steps=tuple(step(name, 0.5) for name in MODELLED_STEPS), seconds=1.25)
    assert stages(passed, row(seconds="9.0")) == []
    assert "  stages " not in report(passed, decision="kept", reason="better", id="e1")


def cost(name: str, status: Status = Status.PASS, **more: float) -> ProblemCost:
    return ProblemCost(name=name, chip="v5e", status=status, **more)


def test_a_report_of_several_problems_names_each_and_the_mean() -> None:
    """Stages of every problem ran, so none was left out."""
    taken = tuple(step(f"{name}: {stage}", 0.5) for name in ("small", "large") for stage in MODELLED_STEPS)
    costs = (
        cost("small", latency_ms=1.0, before_ms=2.0, util_pct=50.0, allowed_share=0.02),
        cost("large", latency_ms=3.0, before_ms=2.0, util_pct=50.0, allowed_share=0.02),
    )
    text = report(verdict(steps=taken, problems=costs), decision="reverted", reason="slower: much; rest", id="e1")
    assert " at 2 problems · " in text
    assert "mean of 2 problems" in text
    assert "small  v5e  2.0000 ->  1.0000 ms  -50.0 %  50.00 % of the roofline" in text
    assert "large  v5e  2.0000 ->  3.0000 ms  +50.0 %  SLOWER than the 2 % allowed" in text
    assert "left out" not in text
    assert "reverted: slower: much; rest" in text


def test_of_many_problems_those_that_decide_are_shown() -> None:
    fine = [cost(f"p{number}", latency_ms=1.0, before_ms=1.0, util_pct=50.0) for number in range(14)]
    large = cost("large", latency_ms=3.0, before_ms=2.0, util_pct=50.0, allowed_share=0.02)
    for last in (large, cost("large", Status.VMEM_OVERFLOW)):
        text = report(verdict(problems=(*fine, last)), decision="reverted", reason="", id="e1")
        assert "problems     large  v5e " in text
        assert "(and 3 more: see --json)" in text


def test_of_several_problems_what_the_refused_one_left_out_is_said() -> None:
    stages_of = [f"small: {stage}" for stage in MODELLED_STEPS] + ["large: contract", "large: problem"]
    costs = (cost("small", latency_ms=1.0), cost("large", Status.LOWERING_FAILED))
    refused = verdict(
        Status.LOWERING_FAILED, steps=tuple(step(name, 0.5) for name in stages_of), problems=costs, footprint=None
    )
    (_, left_out) = stages(refused)
    assert left_out == f"left out: large: {', '.join(MODELLED_STEPS[2:])}"


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


# --- progress ----------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(stream: io.StringIO) -> str:
    ticks = iter([0.0, 0.5, 3.25, 4.0, 5.0])
    with Progress(stream, clock=lambda: next(ticks)) as progress:
        progress.step("compile")
        progress.done("compile", "1 kernel, [red]9 MiB[/red]", 2.75, True)
        progress.step("correctness")
        progress.done("correctness", "wrong\x1b[2J values", 1.0, False)
    return stream.getvalue()


def test_progress_in_plain_lines() -> None:
    assert run(io.StringIO()) == (
        "[  0.5 s] compile …\n"
        "[  3.2 s] compile: 1 kernel, [red]9 MiB[/red] (2.8 s)\n"
        "[  4.0 s] correctness …\n"
        "[  5.0 s] correctness: wrong values (1.0 s) FAILED\n"
    )


def test_progress_on_a_terminal_leaves_one_line_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    written = run(Terminal())
    assert "✓" in written
    assert "✗" in written
    assert "[red]9 MiB[/red]" in written
    assert "\x1b[2J" not in written
    assert written.count("\x1b[?25h") == written.count("\x1b[?25l") > 0, "the cursor comes back"


# --- text from outside -------------------------------------------------------------------------


def check(text: str) -> None:
    assert not FORBIDDEN.search(text)
    assert not any(line.startswith("RESULT") for line in text.splitlines())


def hostile_timeline(text: str) -> Timeline:
    """One whose every name is ``text``."""
    omissions = (OpenSemaphore(name=text, value=1),)
    return replace(timeline(), blame=blame(9000, file=text), compiler=text, not_modelled=omissions)


@given(NASTY)
def test_nothing_from_outside_can_forge_a_line(text: str) -> None:
    claim = Claim(what=text, claimed=text, found=text, agrees=False)
    copy = Copy(instruction=text, kind=text, injected=True, size_bytes=1, cause=text)
    bad = verdict(
        Status.WRONG_VALUES,
        reason=text,
        kernel=text,
        kernel_name=text,
        steps=(Step(name=text, status=Status.WRONG_VALUES, seconds=1.0, summary=text),),
        claims=(claim,),
        copies=(copy,),
        notes=(text,),
        timeline=hostile_timeline(text),
    )
    check(report(bad, decision=text, reason=text, id=text, commit=text))
    check(report(replace(bad, reason="x"), decision="kept", reason=text, id=text))
    check(blame_text(hostile_timeline(text), title=text, kernel_file=text, source=f"{text}\n" * 9))
    hostile = row(**dict.fromkeys(vars(row()), text))
    for width in (None, 40, 110):
        check(log_table([hostile, hostile], width=width))
        check(show(entries([hostile])[0], width=width))
        check(status_text(state(hostile, edited=(text,), running=text), width=width))
        check(Text.from_ansi(log_table([hostile], width=width, colour=True)).plain)
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.step(text)
        progress.done(text, text, 1.0, False)
    check(stream.getvalue())
    line = result_line(None, decision=text, status=Status.WRONG_VALUES)
    assert not FORBIDDEN.search(line)
    assert re.fullmatch(r"RESULT: (\S+=\S+ ){4}decision=\S+ status=WRONG_VALUES", line)
