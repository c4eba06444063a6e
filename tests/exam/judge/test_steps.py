"""The steps of a verdict: the first failure decides, what cannot run is left out, and nothing raises through."""

import ast
import errno
import threading
import time

import pytest

from ratchet.exam.judge.steps import Silent, Steps
from ratchet.values.status import Refusal, Status
from ratchet.values.verdict import MEASURED_STEPS, MODELLED_STEPS
from tests.imports import HERE


def doubled(number: int, *, by: int = 2) -> tuple[int, str]:
    return number * by, f"{number} times {by}"


def raises(error: Exception) -> tuple[None, str]:
    raise error


def test_the_table_of_steps_is_that_of_prepare_and_of_the_document():
    calls = [node for node in ast.walk(ast.parse((HERE / "prepare.py").read_text())) if isinstance(node, ast.Call)]
    steps = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in ("run", "begin")]
    named = [call.args[0].value for call in sorted(steps, key=lambda call: call.lineno)]
    modelled = [name for name in dict.fromkeys(named) if name not in MEASURED_STEPS]
    modelled.remove(
        "correctness"
    )  # begun before the compiler, beside which it runs, it counts after what that leads to
    modelled.insert(modelled.index("schedule"), "correctness")
    assert (*modelled,) == MODELLED_STEPS
    assert set(MEASURED_STEPS) < set(named)
    rows = [
        line.split("|")[1].strip() for line in (HERE / "docs" / "judging.md").read_text().splitlines() if "|" in line
    ]
    assert (*rows[2:],) == MODELLED_STEPS


def test_a_step_returns_its_value_and_leaves_its_summary():
    steps = Steps(Silent())
    assert steps.run("double", doubled, 3, by=4) == 12
    (step,) = steps.steps
    assert (step.name, step.status, step.summary) == ("double", Status.PASS, "3 times 4")
    assert steps.passed
    assert steps.reason == ""


def test_a_step_without_its_needs_is_left_out():
    steps = Steps(Silent())
    assert steps.run("double", doubled, None) is None
    assert steps.steps == []
    assert steps.passed


def test_the_first_failure_decides_and_later_steps_still_run():
    steps = Steps(Silent())
    assert steps.passing("worth it") == "worth it"
    assert steps.run("one", raises, Refusal(Status.CONTRACT, "no symbol")) is None
    assert steps.run("two", raises, Refusal(Status.INVALID, "too fast")) is None
    assert steps.run("three", doubled, 1) == 2
    assert [step.status for step in steps.steps] == [Status.CONTRACT, Status.INVALID, Status.PASS]
    assert (steps.status, steps.reason) == (Status.CONTRACT, "one: no symbol")
    assert steps.passing("worth it") is None


def test_values_that_were_not_worth_checking_hide_no_failure():
    steps = Steps(Silent())
    steps.run("correctness", raises, Refusal(Status.UNCHECKED, "only its latency was asked for"))
    assert (steps.status, steps.passed) == (Status.UNCHECKED, False)
    steps.run("schedule", raises, Refusal(Status.DEADLOCK, "all wait"))
    steps.run("audit", raises, Refusal(Status.UNCHECKED, "not asked for either"))
    assert (steps.status, steps.reason) == (Status.DEADLOCK, "schedule: all wait")


def test_a_step_that_was_begun_counts_where_it_ends():
    steps, started, may_end = Steps(Silent()), threading.Event(), threading.Event()

    def fails() -> tuple[int, str]:
        started.set()
        assert may_end.wait(60)
        raise Refusal(Status.WRONG_VALUES, "0.5 off")

    slow = steps.begin("values", fails)
    assert started.wait(60), "it runs beside the next step"
    quick = steps.begin("schedule", raises, Refusal(Status.DEADLOCK, "waits"))
    assert steps.peek(quick) is None
    assert steps.peek(steps.begin("double", doubled, 2)) == 4
    may_end.set()
    assert steps.end(slow) is None
    assert steps.end(quick) is None
    assert [step.status for step in steps.steps] == [Status.WRONG_VALUES, Status.DEADLOCK]
    assert steps.reason == "values: 0.5 off"
    assert steps.end(steps.begin("double", doubled, None)) is None
    assert len(steps.steps) == 2


def test_what_is_not_waited_for_has_another_outcome():
    steps = Steps(Silent())
    pending = steps.begin("double", doubled, 2)
    assert steps.end(pending.instead(Refusal(Status.UNCHECKED, "too slow"))) is None
    assert (steps.status, steps.reason) == (Status.UNCHECKED, "double: too slow")
    assert steps.end(pending) == 4


def test_what_no_step_may_raise_is_an_internal_error_in_one_line():
    """With the first 300 characters of its first line; the traceback is apart."""
    steps = Steps(Silent())
    for name, error in (
        ("one", ValueError("\n" + "x" * 301 + "\nmore")),
        ("two", KeyError()),
        ("three", RecursionError()),
    ):
        assert steps.run(name, raises, error) is None
    assert steps.status is Status.INTERNAL
    said = [step.summary.partition("; the traceback")[0] for step in steps.steps]
    assert said == ["ValueError: " + "x" * 300, "KeyError: no message", "RecursionError: no message"]
    assert steps.reason == f"one: {steps.steps[0].summary}"
    assert steps.internal_error.startswith("one\nTraceback")
    assert "\ntwo\nTraceback" in steps.internal_error


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (OSError(errno.ENOSPC, "no luck", "dump.txt"), Status.NO_SPACE, "no luck (dump.txt)"),
        (OSError(errno.EDQUOT, "no luck"), Status.NO_SPACE, "no luck"),
        (OSError(errno.EIO, "no luck"), Status.INFRASTRUCTURE, "no luck"),
        (OSError("the pipe is gone"), Status.INFRASTRUCTURE, "the pipe is gone"),
    ],
)
def test_trouble_of_the_machine_is_no_bug(error, status, said):
    steps = Steps(Silent())
    steps.run("compile", raises, error)
    assert (steps.status, steps.reason) == (status, f"compile: {said}: free or repair that and run again")
    assert steps.internal_error == ""


def test_an_interrupt_goes_through():
    def interrupted() -> tuple[None, str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Steps(Silent()).run("compile", interrupted)


class Noted:
    """Progress, written down."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def step(self, name: str) -> None:
        self.lines.append((name,))

    def done(self, name: str, summary: str, seconds: float, ok: bool) -> None:
        assert seconds >= 0
        self.lines.append((name, summary, ok))


def test_progress_hears_of_every_step_as_it_begins_and_ends():
    progress = Noted()
    steps = Steps(progress)
    steps.run("double", doubled, 3)
    steps.run("values", raises, Refusal(Status.UNCHECKED, "too slow"))
    steps.note("compiling")
    steps.end(steps.begin("schedule", raises, Refusal(Status.DEADLOCK, "waits")))
    steps.run("left out", doubled, None)
    assert progress.lines == [
        ("double",),
        ("double", "3 times 2", True),
        ("values",),
        ("values", "too slow", True),
        ("compiling",),
        ("schedule",),
        ("schedule", "waits", False),
    ]


def test_a_step_takes_what_its_function_took():
    """Not the time until it was asked for: neither bound depends on how busy the machine is."""
    took = []

    def timed() -> tuple[None, str]:
        begun = time.monotonic()
        time.sleep(0.001)
        took.append(time.monotonic() - begun)
        return None, ""

    steps, start = Steps(Silent()), time.monotonic()
    steps.run("one", timed)
    within = time.monotonic() - start
    start = time.monotonic()
    pending = steps.begin("two", timed)
    assert pending is not None
    pending.wait()
    until_done = time.monotonic() - start
    time.sleep(0.001)
    steps.end(pending)
    one, two = (step.seconds for step in steps.steps)
    assert took[0] <= one <= within
    assert took[1] <= two <= until_done
    assert one + two <= steps.seconds


def test_settings_may_be_missing_and_needs_may_not():
    def sized(number: int, *, by: int | None) -> tuple[int, str]:
        return number, f"{by}"

    steps = Steps(Silent())
    assert steps.run("run", sized, 1, by=None) == 1
    assert steps.end(steps.begin("begun", sized, 1, by=None)) == 1
    assert steps.run("no need", sized, None, by=1) is None
    assert steps.begin("no need", sized, None, by=1) is None
    assert steps.peek(None) is None
    assert [step.summary for step in steps.steps] == ["None", "None"]
