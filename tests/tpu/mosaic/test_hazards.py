"""What is executed again, with what changed, and what is said of it: on programs that only say what they would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ratchet.tpu.mosaic.findings import Finding, Kind, RunResult
from ratchet.tpu.mosaic.hazards import check

LOAD = SimpleNamespace(name="vector.load", operands=(), results=(), location="kernel.py:7")
INPUTS = [np.zeros(2, np.float32)]
OUTPUT = np.arange(4, dtype=np.float32).reshape(2, 2)
FINDING = Finding(kind=Kind.WAIT_WITHOUT_START, operation="o", message="m")
PLAIN, ON_WAIT, WINDOWS, DIGESTS = (frozenset(o) for o in ((), ("on_wait",), ("windows_ahead",), ("digests",)))
Giving = Callable[[dict[str, int], frozenset[str]], Any]
"""From the changes of a run and the options of the translation: what it gives."""


def kernel(*semantics: str, shares: bool = False) -> Any:
    return SimpleNamespace(
        name="k",
        semantics=semantics,
        shares_windows=shares,
        outputs=1,
        module=SimpleNamespace(operations=lambda: [LOAD]),
        coordinates=lambda step: (step, 0),
    )


@dataclass
class Program:
    """A program and its translations. Each run takes a second."""

    gives: Giving
    kernels: list[Any] = field(default_factory=list)
    covered: tuple[str, ...] = ()
    options: frozenset[str] = PLAIN
    runs: list[tuple[dict[str, int], frozenset[str]]] = field(default_factory=list)
    begun: list[Any] = field(default_factory=list)
    late: bool = False
    """Whether it answers with DMAs that arrive late."""
    devices: int = 1
    apart: bool = False

    @property
    def program(self) -> Program:
        return self

    @property
    def has_orders(self) -> bool:
        return any("parallel" in semantics for one in self.kernels for semantics in one.semantics)

    @property
    def first(self) -> dict[str, bool]:
        return {"on_wait": True} if self.late else {}

    def place(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return inputs

    def run(self, inputs: Sequence[np.ndarray], **changed: int) -> RunResult:
        assert inputs is INPUTS
        self.runs.append((changed, self.options))
        gives = self.gives(changed, self.options)
        return gives if isinstance(gives, RunResult) else result(gives)

    def with_options(self, **options: Any) -> Program:
        return replace(self, options=frozenset(name for name, on in options.items() if on))

    def begin(self, *variants: Any) -> None:
        assert self.apart or not self.runs, "they are compiled beside the first run"
        self.begun += variants


def result(output: np.ndarray | float, *findings: Finding, **more: Any) -> RunResult:
    outputs = (np.zeros(1), output if isinstance(output, np.ndarray) else OUTPUT + np.float32(output))
    return RunResult(outputs=outputs, findings=findings, seconds=1.0, **more)


def digests(*places: int) -> tuple[np.ndarray, ...]:
    """Digests of six reads, two per step (the load, the write-back), changed at some."""
    made = np.zeros(7, np.int32)
    made[list(places)] = 1
    return (made,)


def checked(program: Program, *, at_once: bool = False) -> tuple[Any, RunResult]:
    """The one finding, or none; and all that came of it."""
    done = check(program, INPUTS, seed=5, at_once=at_once)
    assert done.seconds == len(program.runs)
    return (*done.findings, None)[0], done


@pytest.mark.parametrize(
    ("kernels", "covered", "more"),
    [
        ([], (), []),
        ([kernel("arbitrary")], ("tpu.wait_dma2",), []),
        ([kernel("arbitrary"), kernel("arbitrary", "parallel")], (), [({"seed": 5}, PLAIN)]),
        ([kernel("core_parallel")], (), [({"seed": 5}, PLAIN)]),
    ],
)
def test_a_sound_program_is_run_again_with_other_memory_and_order_where_steps_are_parallel(kernels, covered, more):
    program = Program(lambda changed, options: 0, kernels=kernels, covered=covered)
    finding, done = checked(program)
    assert finding is None
    assert (done.outputs[1] == OUTPUT).all()
    assert program.runs == [({}, PLAIN), ({"fill": 3}, PLAIN), *more]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("semantics", "more"), [("arbitrary", {}), ("parallel", {"seed": 5})])
def test_memory_and_order_are_changed_at_once_where_that_is_asked_for(semantics, more, late):
    program = Program(lambda changed, options: 0, kernels=[kernel(semantics)], late=late)
    assert checked(program, at_once=True)[0] is None
    assert [changed for changed, _ in program.runs] == [{}, {"fill": 3} | more]


@pytest.mark.parametrize("again", [True, False])
def test_what_differs_only_with_memory_and_order_at_once_is_found(again):
    program = Program(lambda *_: 0, kernels=[kernel("parallel")])

    def gives(changed, options):
        differs = changed.keys() >= {"fill", "seed"} and (again or len(program.runs) == 2)
        return result(1.0 * differs, digests=digests(6))

    program.gives = gives
    assert checked(program, at_once=True)[0].kind is Kind.ORDER_OF_PARALLEL_STEPS


def test_what_the_plain_run_finds_is_enough():
    program = Program(lambda changed, options: result(0, FINDING))
    assert checked(program)[0] == FINDING
    assert len(program.runs) == 1


def test_chips_fall_behind_each_other_where_one_waits_for_what_is_sent_later():
    program = Program(lambda changed, options: result(0, *[FINDING] * (not program.apart)), devices=2)
    assert checked(program)[0] is None
    assert program.apart
    stuck = Program(lambda changed, options: result(0, FINDING), devices=2)
    assert checked(stuck)[0] == FINDING, "they wait for ever"
    assert len(stuck.runs) == 2


@pytest.mark.parametrize(
    ("kernels", "covered", "options"),
    [([], ("tpu.enqueue_dma",), ON_WAIT), ([kernel(), kernel(shares=True)], (), WINDOWS)],
)
def test_a_translation_is_run_once_where_it_changes_nothing_and_again_where_it_does(kernels, covered, options):
    same = Program(lambda changed, options: 0, kernels=kernels, covered=covered)
    assert checked(same)[0] is None
    assert same.begun == [dict.fromkeys(options, True)]
    assert same.runs[2:] == [({}, options)]
    rounded = Program(lambda changed, options: 0.5 * bool(options), kernels=kernels, covered=covered)
    assert checked(rounded)[0] is None, "two translations may round differently"
    assert rounded.runs[2:] == [({}, options), ({"fill": 3}, options)]
    named = Program(lambda changed, options: result(0, *[FINDING] * bool(options)), kernels=kernels, covered=covered)
    assert checked(named)[0] == FINDING
    assert len(named.runs) == 3


def test_what_makes_no_difference_in_one_trial_may_in_the_next():
    def gives(changed, options):
        off = 0.5 * ("windows_ahead" in options) + 1.0 * ("windows_ahead" in options and bool(changed))
        return result(off, digests=digests(6))

    program = Program(gives, kernels=[kernel("parallel", shares=True)], covered=("tpu.enqueue_dma",))
    assert checked(program)[0].kind is Kind.WINDOW_RACE
    assert [options for _, options in program.runs[:6]] == [PLAIN, PLAIN, PLAIN, ON_WAIT, WINDOWS, WINDOWS]


def test_where_late_dmas_change_nothing_the_plain_translation_is_not_needed():
    kernels = [kernel("parallel", shares=True)]
    program = Program(lambda changed, options: 0, kernels=kernels, covered=("tpu.enqueue_dma",), late=True)
    assert checked(program)[0] is None
    assert program.runs == [({}, ON_WAIT), ({"fill": 3}, ON_WAIT), ({"seed": 5}, ON_WAIT), ({}, WINDOWS)]


def test_what_is_found_where_dmas_arrive_late_is_said_of_the_plain_translation():
    program = Program(lambda changed, options: result(0, FINDING), covered=("tpu.enqueue_dma",), late=True)
    assert check(program, INPUTS, seed=5).findings == (FINDING,)
    assert program.runs == [({}, ON_WAIT), ({}, PLAIN)]


BROKEN = {
    Kind.UNINITIALISED_MEMORY: ({"fill": 3}, PLAIN, {}, "what memory held before it was written"),
    Kind.ORDER_OF_PARALLEL_STEPS: ({"seed": 5}, PLAIN, {"kernels": [kernel("parallel")]}, "the order of the parallel"),
    Kind.READ_BEFORE_WAIT: ({"fill": 3}, ON_WAIT, {"covered": ("tpu.enqueue_dma",)}, "a DMA arrives"),
    Kind.WINDOW_RACE: ({"fill": 3}, WINDOWS, {"kernels": [kernel(shares=True)]}, "the pipeline"),
}


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", BROKEN)
def test_what_makes_a_difference_is_named_with_its_place(kind, late, at_once):
    trigger, wanted, more, because = BROKEN[kind]

    def gives(changed, options):
        differs = trigger.items() <= changed.items() and wanted <= options
        off = OUTPUT + 0.5 * ("on_wait" in options) + 0.25 * ("windows_ahead" in options)
        off[1] += differs
        return result(off, digests=digests(2 if differs else 6) if "digests" in options else ())

    program = Program(gives, **{"kernels": [kernel()], "late": late, **more})
    (found,) = check(program, INPUTS, seed=5, at_once=at_once).findings
    assert (found.kind, found.operation, found.grid_step) == (kind, "vector.load", (1, 0))
    assert found.location == "kernel.py:7"
    assert found.message.startswith("kernel k: output 1 depends on ")
    assert because in found.message
    assert found.message.endswith("; it differs in 2 elements, the first [1, 0]; it begins here")


def located(place: int | None, padded: int | None = None) -> tuple[Finding, list[Any]]:
    """Of a program that depends on what memory held, with the first reads that differ without and with padding."""

    def gives(changed, options):
        if not options:
            return 1.0 * bool(changed)
        where = padded if changed.get("padding") else place
        return result(1.0 * bool(changed), digests=digests(6 if where is None or not changed else where))

    program = Program(gives, kernels=[kernel()])
    finding, _ = checked(program)
    return finding, program.runs[2:]


def test_a_write_back_has_no_line():
    found, runs = located(5)
    assert (found.operation, found.grid_step, found.location) == ("write-back of output 0", (2, 0), "")
    assert runs == [({}, DIGESTS), ({"fill": 3, "padding": 0}, DIGESTS)]


def test_what_is_past_a_ragged_edge_is_named_where_nothing_else_is():
    found, runs = located(None, 0)
    assert found.message.endswith("the first [0, 0] (what is past the ragged edge of an input); it begins here")
    assert found.grid_step == (0, 0)
    assert [changed for changed, _ in runs[1:]] == [{"fill": 3, "padding": 0}, {"fill": 3, "padding": 3}]


def test_a_place_that_is_not_known_is_not_named():
    found, runs = located(None)
    assert (found.kind, found.operation, found.grid_step, found.location) == (Kind.UNINITIALISED_MEMORY, "", (), "")
    assert found.message.startswith("output 1 depends on what memory held before it was written; it differs in 4 el")
    assert len(runs) == 3


def test_an_order_has_no_padding():
    def gives(changed, options):
        return result(1.0 * ("seed" in changed), digests=digests(6))

    program = Program(gives, kernels=[kernel("parallel")])
    found, _ = checked(program)
    assert (found.kind, found.operation) == (Kind.ORDER_OF_PARALLEL_STEPS, "")
    assert [changed for changed, options in program.runs if options] == [{}, {"seed": 5, "padding": 0}]


def test_other_devices_outputs_count_and_bits_and_not_values():
    def replicas(changed, options):
        return result(0, replicas=((np.zeros(1), OUTPUT * (2 if changed else 1)),), digests=digests(6))

    assert "differs in 3 elements, the first [0, 1]" in checked(Program(replicas, kernels=[kernel()]))[0].message
    zeros = Program(lambda changed, options: np.float32([0, -0.0 if changed else 0.0]))
    assert "differs in 1 elements, the first [1]" in checked(zeros)[0].message
    assert checked(Program(lambda changed, options: np.float32([np.nan, 1])))[0] is None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "m"),
        ({"operation": "vector.load"}, "m [vector.load]"),
        ({"grid_step": (1, 2)}, "m [kernel in grid step (1, 2)]"),
        ({"location": "k.py:3"}, "m [kernel at k.py:3]"),
        ({"operation": "o", "grid_step": (0,), "location": "k.py:3"}, "m [o in grid step (0,) at k.py:3]"),
    ],
)
def test_a_finding_in_words(values, said):
    assert str(Finding(kind=Kind.DMA_NEVER_WAITED, message="m", **values)) == f"dma_never_waited: {said}"
