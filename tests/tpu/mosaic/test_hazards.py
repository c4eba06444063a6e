"""What is executed again, with what changed, and what is said of it: on programs that only say what they would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ratchet.tpu.mosaic.findings import Finding, Kind
from ratchet.tpu.mosaic.hazards import check
from ratchet.tpu.mosaic.result import RunResult

LOAD = SimpleNamespace(name="vector.load", operands=(), results=(), location="kernel.py:7")
INPUTS = [np.zeros(2, np.float32)]
OUTPUT = np.arange(4, dtype=np.float32).reshape(2, 2)
FINDING = Finding(kind=Kind.WAIT_WITHOUT_START, operation="o", grid_step=(), location="", message="m")
Giving = Callable[[dict[str, int], frozenset[str]], Any]
"""From the changes of a run and the options of the variant: what it gives."""


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
    """Each run takes a second."""

    gives: Giving
    kernels: list[Any] = field(default_factory=list)
    covered: tuple[str, ...] = ()
    options: frozenset[str] = frozenset()
    runs: list[tuple[dict[str, int], frozenset[str]]] = field(default_factory=list)
    begun: list[tuple[int, Any]] = field(default_factory=list)
    """How often it had run when variants were begun, and which."""
    late: bool = False
    """Whether it is executed with DMAs that arrive late."""

    @property
    def has_orders(self) -> bool:
        return any("parallel" in semantics for one in self.kernels for semantics in one.semantics)

    @property
    def executed(self) -> Program:
        return self.variant(late_dma=True) if self.late else self

    def place(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return inputs

    def run(self, inputs: Sequence[np.ndarray], **changed: int) -> RunResult:
        assert inputs is INPUTS
        self.runs.append((changed, self.options))
        gives = self.gives(changed, self.options)
        return gives if isinstance(gives, RunResult) else result(gives)

    def variant(self, **options: bool) -> Program:
        return replace(self, options=frozenset(name for name, on in options.items() if on))

    def begin(self, variants: Sequence[Any]) -> None:
        self.begun.append((len(self.runs), list(variants)))


def result(output: np.ndarray | float, *findings: Finding, **more: Any) -> RunResult:
    outputs = (np.zeros(1), output if isinstance(output, np.ndarray) else OUTPUT + np.float32(output))
    return RunResult(outputs=outputs, findings=findings, seconds=1.0, **more)


def witness(**at: int) -> tuple[np.ndarray, ...]:
    """Digests of six reads, two per step (the load, the write-back), changed at one."""
    digests = np.zeros(7, np.int32)
    for place in at.values():
        digests[place] = 1
    return (digests,)


def test_a_sound_program_is_run_once_more_with_other_memory():
    program = Program(lambda changed, options: 0)
    found = check(program, INPUTS, seed=5)
    assert found.findings == ()
    assert (found.outputs[1] == OUTPUT).all()
    assert program.runs == [({}, frozenset()), ({"fill": 3}, frozenset())]
    assert found.seconds == 2


def test_what_the_plain_run_finds_is_enough():
    program = Program(lambda changed, options: result(0, FINDING))
    assert check(program, INPUTS, seed=5).findings == (FINDING,)
    assert len(program.runs) == 1


@pytest.mark.parametrize(
    ("kernels", "covered", "more"),
    [
        ([kernel("arbitrary")], ("tpu.wait_dma2",), []),
        ([kernel("arbitrary"), kernel("arbitrary", "parallel")], (), [({"seed": 5}, frozenset())]),
        ([kernel("core_parallel")], (), [({"seed": 5}, frozenset())]),
    ],
)
def test_the_order_is_changed_where_steps_are_parallel(kernels, covered, more):
    program = Program(lambda changed, options: 0, kernels=kernels, covered=covered)
    assert check(program, INPUTS, seed=5).findings == ()
    assert program.runs[2:] == more


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("semantics", "more"), [("arbitrary", {}), ("parallel", {"seed": 5})])
def test_memory_and_order_are_changed_at_once_where_that_is_asked_for(semantics, more, late):
    program = Program(lambda changed, options: 0, kernels=[kernel(semantics)], late=late)
    found = check(program, INPUTS, seed=5, at_once=True)
    assert found.findings == ()
    assert [changed for changed, _ in program.runs] == [{}, {"fill": 3} | more]
    assert found.seconds == 2


def test_what_differs_only_with_memory_and_order_at_once_is_found():
    def gives(changed, options):
        return result(1.0 * (changed.keys() >= {"fill", "seed"}), witness=witness(at=6))

    program = Program(gives, kernels=[kernel("parallel")])
    found = check(program, INPUTS, seed=5, at_once=True)
    (finding,) = found.findings
    assert finding.kind is Kind.ORDER_DEPENDENT
    assert found.seconds == len(program.runs)


def test_what_differs_once_and_not_again_is_found():
    program = Program(lambda *_: 0, kernels=[kernel("parallel")])
    program.gives = lambda changed, options: result(1.0 * (len(program.runs) == 2), witness=witness(at=6))
    (found,) = check(program, INPUTS, seed=5, at_once=True).findings
    assert found.kind is Kind.ORDER_DEPENDENT


@pytest.mark.parametrize(
    ("kernels", "covered", "option"),
    [([], ("tpu.enqueue_dma",), "late_dma"), ([kernel(), kernel(shares=True)], (), "late_windows")],
)
def test_a_variant_is_run_once_where_it_changes_nothing_and_again_where_it_does(kernels, covered, option):
    same = Program(lambda changed, options: 0, kernels=kernels, covered=covered)
    assert check(same, INPUTS, seed=5).seconds == 3
    assert same.begun[0] == (0, [{option: True}]), "it is compiled beside the first run"
    assert same.runs[2:] == [({}, frozenset({option}))]
    rounded = Program(lambda changed, options: 0.5 * bool(options), kernels=kernels, covered=covered)
    found = check(rounded, INPUTS, seed=5)
    assert found.findings == (), "two translations may round differently"
    assert found.seconds == 4
    assert rounded.runs[2:] == [({}, frozenset({option})), ({"fill": 3}, frozenset({option}))]
    named = Program(lambda changed, options: result(0, *[FINDING] * bool(options)), kernels=kernels, covered=covered)
    found = check(named, INPUTS, seed=5)
    assert found.findings == (FINDING,)
    assert found.seconds == 3


def test_what_makes_no_difference_in_one_trial_may_in_the_next():
    def gives(changed, options):
        return 0.5 * ("late_windows" in options) + 1.0 * ("late_windows" in options and bool(changed))

    program = Program(gives, kernels=[kernel("parallel", shares=True)], covered=("tpu.enqueue_dma",))
    program.gives = lambda changed, options: result(gives(changed, options), witness=witness(at=6))
    (found,) = check(program, INPUTS, seed=5).findings
    assert found.kind is Kind.WINDOW_RACE
    assert [options for _, options in program.runs[:6]] == [
        frozenset(),
        frozenset(),
        frozenset(),
        frozenset({"late_dma"}),
        frozenset({"late_windows"}),
        frozenset({"late_windows"}),
    ]


LATE = frozenset({"late_dma"})


def test_where_dmas_that_arrive_late_change_nothing_the_plain_program_is_not_needed():
    program = Program(lambda changed, options: 0, kernels=[kernel("parallel")], covered=("tpu.enqueue_dma",), late=True)
    found = check(program, INPUTS, seed=5)
    assert found.findings == ()
    assert program.runs == [({}, LATE), ({"fill": 3}, LATE), ({"seed": 5}, LATE)]
    assert found.seconds == 3


def test_windows_are_tried_beside_dmas_that_arrive_late():
    program = Program(lambda *_: 0, kernels=[kernel(shares=True)], covered=("tpu.enqueue_dma",), late=True)
    assert check(program, INPUTS, seed=5).findings == ()
    assert program.begun[0] == (0, [{"late_windows": True}])
    assert program.runs == [({}, LATE), ({"fill": 3}, LATE), ({}, frozenset({"late_windows"}))]


def test_what_is_found_where_dmas_arrive_late_is_said_of_the_plain_program():
    program = Program(lambda changed, options: result(0, FINDING), covered=("tpu.enqueue_dma",), late=True)
    assert check(program, INPUTS, seed=5).findings == (FINDING,)
    assert program.runs == [({}, LATE), ({}, frozenset())]


BROKEN = {
    "memory": (Kind.UNINITIALISED, {"fill": 3}, set(), {}, "what memory held before it was written"),
    "order": (Kind.ORDER_DEPENDENT, {"seed": 5}, set(), {"kernels": [kernel("parallel")]}, "the order of the parallel"),
    "arrival": (Kind.READ_BEFORE_WAIT, {"fill": 3}, {"late_dma"}, {"covered": ("tpu.enqueue_dma",)}, "a DMA arrives"),
    "windows": (Kind.WINDOW_RACE, {"fill": 3}, {"late_windows"}, {"kernels": [kernel(shares=True)]}, "the pipeline"),
}


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("case", BROKEN)
def test_what_makes_a_difference_is_named_with_its_place(case, late, at_once):
    kind, trigger, variant, more, because = BROKEN[case]

    def gives(changed, options):
        differs = trigger.items() <= changed.items() and variant <= options
        off = OUTPUT.copy()
        off[1, 0] += differs
        off[1, 1] += differs
        off += 0.5 * ("late_dma" in options) + 0.25 * ("late_windows" in options)
        return result(off, witness=witness(at=2 if differs else 6) if "witness" in options else ())

    program = Program(gives, **{"kernels": [kernel()], "late": late, **more})
    (found,) = check(program, INPUTS, seed=5, at_once=at_once).findings
    assert (found.kind, found.operation, found.grid_step, found.location) == (
        kind,
        "vector.load",
        (1, 0),
        "kernel.py:7",
    )
    assert found.message.startswith("kernel k: output 1 depends on ")
    assert because in found.message
    assert found.message.endswith("; it differs in 2 elements, the first [1, 0]; it begins here")


def located(place: int | None, padded: int | None = None) -> tuple[Finding, Program, float]:
    """Of a program that depends on what memory held, with the first reads that differ without and with padding."""

    def gives(changed, options):
        if "witness" not in options:
            return 1.0 * bool(changed)
        where = padded if changed.get("padding") else place
        return result(1.0 * bool(changed), witness=witness(at=6 if where is None or not changed else where))

    program = Program(gives, kernels=[kernel()])
    done = check(program, INPUTS, seed=5)
    return done.findings[0], program, done.seconds


def test_a_write_back_has_no_line():
    found, program, seconds = located(5)
    assert (found.operation, found.grid_step, found.location) == ("write-back of output 0", (2, 0), "")
    assert program.runs[2:] == [
        ({}, frozenset({"witness"})), ({"fill": 3, "padding": 0}, frozenset({"witness"})),
    ]  # fmt: skip
    assert seconds == 4


def test_what_is_past_a_ragged_edge_is_named_where_nothing_else_is():
    found, program, seconds = located(None, 0)
    assert found.message.endswith("the first [0, 0] (what is past the ragged edge of an input); it begins here")
    assert found.grid_step == (0, 0)
    assert program.runs[-1][0] == {"fill": 3, "padding": 3}
    assert seconds == 5


def test_a_place_that_is_not_known_is_not_named():
    found, program, seconds = located(None)
    assert (found.kind, found.operation, found.grid_step, found.location) == (Kind.UNINITIALISED, "", (), "")
    assert found.message.startswith("output 1 depends on what memory held before it was written; it differs in 4 el")
    assert (len(program.runs), seconds) == (5, 5)


def test_an_order_has_no_padding():
    program = Program(
        lambda changed, options: result(1.0 * bool(changed), witness=witness(at=6)), kernels=[kernel("parallel")]
    )
    program.gives = lambda changed, options: result(1.0 * ("seed" in changed), witness=witness(at=6))
    (found,) = check(program, INPUTS, seed=5).findings
    assert (found.kind, found.operation) == (Kind.ORDER_DEPENDENT, "")
    assert [changed for changed, options in program.runs if options] == [{}, {"seed": 5, "padding": 0}]


def test_other_devices_outputs_count_and_bits_and_not_values():
    def replicas(changed, options):
        return result(0, replicas=((np.zeros(1), OUTPUT * (2 if changed else 1)),), witness=witness(at=6))

    (found,) = check(Program(replicas, kernels=[kernel()]), INPUTS, seed=5).findings
    assert "differs in 3 elements, the first [0, 1]" in found.message
    zeros = Program(lambda changed, options: np.float32([0, -0.0 if changed else 0.0]))
    assert "differs in 1 elements, the first [1]" in check(zeros, INPUTS, seed=5).findings[0].message
    nan = Program(lambda changed, options: np.float32([np.nan, 1]))
    assert check(nan, INPUTS, seed=5).findings == ()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "m"),
        ({"operation": "vector.load"}, "m [vector.load]"),
        ({"grid_step": (1, 2)}, "m [kernel in grid step (1, 2)]"),
        ({"location": "k.py:3"}, "m [kernel at k.py:3]"),
        (
            {"operation": "o", "grid_step": (0,), "location": "k.py:3"},
            "m [o in grid step (0,) at k.py:3]",
        ),
    ],
)
def test_a_finding_in_words(values, said):
    empty = {"operation": "", "grid_step": (), "location": "", "message": "m"}
    assert str(Finding(kind=Kind.NEVER_WAITED, **{**empty, **values})) == f"dma_never_waited: {said}"
