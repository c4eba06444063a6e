"""The machine and the executor go the same way through a kernel, and a difference is refused.

So is a modelled run that is unlike those on other draws of what steers it: the kernel knows the public one.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.fuzz.expressions import (
    FLOATS,
    INTEGERS,
    OPERATIONS,
    WIDTH,
    Expression,
    defined,
    kernel,
    rows,
    steps,
)  # fmt: skip
from ratchet.exam.judge import control
from ratchet.tpu import latency
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.dump.hlo import KERNEL, HloModule, HloOp
from ratchet.tpu.mosaic.run import Loaded, Options
from ratchet.tpu.scalar import Undefined
from ratchet.values import Artefact, Mesh, Program, Timeline
from ratchet.values.control import ControlFlow, decode, encode
from ratchet.values.status import Status
from ratchet.values.tokens import TokenTable
from tests.exam.judge.programs import artefact, examined, run_of
from tests.kernels import HONEST, edited
from tests.refusals import refused

FLOW = ControlFlow(branches={"t:1": (3, 5)}, loops={"t:2": 12}, copies={"t:3": 4, "t:4": 0})
NO_KERNEL = HloModule(ops={}, entry="main")
Compile = Callable[[Artefact], Program]


def test_the_same_way_is_no_difference() -> None:
    assert control.differences(FLOW, FLOW) == ()
    assert decode(encode(FLOW)) == FLOW


@pytest.mark.parametrize("change", [
    {"branches": {"t:1": (5, 3)}}, {"branches": {"t:1": (3, 4)}}, {"loops": {"t:2": 11}},
    {"copies": {"t:3": 3}}, {"copies": {"t:3": 0}}, {"copies": {"t:3": 4, "t:4": 1}},
])  # fmt: skip
def test_a_difference_is_named(change: dict[str, Any]) -> None:
    (difference,) = control.differences(FLOW, replace(FLOW, **change))
    assert {"branch": "t:1", "loop": "t:2"}.get(difference.what, difference.place) == difference.place


def test_what_the_compiler_unrolled_or_split_is_none() -> None:
    assert control.differences(FLOW, replace(FLOW, branches={}, loops={}, copies={"t:3": 8})) == ()
    lost = replace(FLOW, copies={})
    assert control.differences(FLOW, lost)
    assert control.differences(FLOW, lost, vectors=FLOW.copies) == (), "vector code may have made all of them"


def compiled_kernel(body: bytes) -> HloModule:
    """A compiled program with one kernel, of which only its Mosaic module is given."""
    config = json.dumps({"custom_call_config": {"body": base64.b64encode(body).decode()}}).encode()
    fields: dict[str, Any] = {"types": (), "is_tuple": False, "operands": (), "computation": "main", "is_root": True}
    op = HloOp(name="kernel_0.1", opcode="custom-call", target=KERNEL, backend_config=config, **fields)
    return HloModule(ops={op.name: op}, entry="main")


def test_a_compiled_kernel_is_one_that_was_executed() -> None:
    executed = frozenset({hashlib.sha256(b"the module").hexdigest()})
    control.same_modules(executed, compiled_kernel(b"the module"))
    with refused(
        Status.CANNOT_VERIFY, match=r"kernel_0\.1 of the compiled program is none of the 1 that were executed"
    ):
        control.same_modules(executed, compiled_kernel(b"another"))


def timeline(*flows: ControlFlow | None) -> Timeline:
    """A run of as many chips, of which only control flow is given."""
    chips = [run_of(control=flow) for flow in flows]
    return replace(chips[0], chips=tuple(chips) if len(chips) > 1 else ())


def test_the_step_says_both_numbers_and_the_source_line() -> None:
    tokens = TokenTable(sources=(None, ("kernel.py", 40, 5)))
    other = replace(FLOW, branches={"t:1": (0, 8)})
    with refused(Status.CONTROL_FLOW_DIFFERS, match=r"branch at kernel\.py:40.* 3 times .* 5 times .* 0 and 8 times"):
        control.step(FLOW, timeline(other), tokens, NO_KERNEL)
    assert control.step(FLOW, timeline(FLOW), tokens, NO_KERNEL)[0] == 4


def test_of_several_chips_the_most_counts() -> None:
    less = ControlFlow(branches={"t:1": (1, 5)}, loops={"t:2": 12}, copies={"t:3": 4})
    assert control.of_chips(timeline(less, replace(less, branches={"t:1": (3, 2)}))) == replace(
        less, branches={"t:1": (3, 5)}
    )
    assert control.of_chips(timeline(less, None)) is None
    assert control.step(FLOW, timeline(None), TokenTable(), NO_KERNEL)[0] == 0


def both_ways(expressions: list[Expression], words: np.ndarray, compiled: Compile) -> tuple[ControlFlow, ControlFlow]:
    """Control flow of executor and machine, after the executor's values were compared with the definition."""
    count = len(words)
    given = np.ascontiguousarray(words.reshape(-1))
    made = artefact(kernel(expressions, count), ((count * WIDTH,), np.int32))
    result = Loaded(tokenise(made.program)[0], Options()).run([given])
    assert result.findings == ()
    found = result.outputs[0].reshape(count, -1, 128)[:, : len(expressions), 0]
    np.testing.assert_array_equal(found, rows(expressions, words))
    modelled = latency.step(compiled(made), V5E, Mesh(), {0: given})[0].control
    assert modelled is not None, "a branch of the compiled program depends on what the machine does not know"
    return result.control, modelled


def compare(expressions: list[Expression], words: np.ndarray, compiled: Compile) -> int:
    """How many branches and loops were compared."""
    executed, modelled = both_ways(expressions, words, compiled)
    assert control.differences(executed, modelled) == ()
    return len(set(executed.branches) & set(modelled.branches)) + len(set(executed.loops) & set(modelled.loops))


@pytest.mark.parametrize("kind", ["shifts", "divisions", "floats"])
def test_machine_and_executor_take_the_same_branches(kind: str, compiled: Compile) -> None:
    families: dict[str, list[Expression]] = {
        "shifts": [
            ("shift left", 0, 1), ("shift right", 0, 1), ("shift right logical", 0, 1),
            ("xor", ("shift right", 0, 1), ("shift left", 2, 0)), ("multiply", 0, ("shift right logical", 1, 2)),
        ],
        "divisions": [("divide", 0, 1), ("remainder", 0, 1), ("divide", ("add", 0, 1), 2), ("subtract", 0, 2)],
        "floats": [
            ("to integer", ("float add", 3, 4)), ("below", ("float multiply", 3, 4), ("to float", 0)),
            ("to integer", ("floor", ("float minimum", 3, 4))), ("below", 3, ("ceil", ("float maximum", 4, 3))),
        ],
    }  # fmt: skip
    expressions = families[kind]
    words = steps(expressions, 256, seed=0)
    assert len(words) > 100
    assert compare(expressions, words, compiled) >= len(expressions)


@pytest.mark.parametrize(("expression", "words", "what"), [
    (("below", ("to float", 2), ("float add", 3, 4)), (0, 0, 0, 1, 1), "denormals are flushed"),
    (("below", 3, 4), (0, 0, 0, 1, 2), "denormals are flushed"),
    (("remainder", 0, 1), (7, 0, 0, 0, 0), "a division by zero"),
    (("to integer", 3), (0, 0, 0, 0x4F32D05E, 0), "no int32"),
])  # fmt: skip
def test_the_machine_refuses_what_an_undefined_scalar_steers(
    expression: Expression, words: tuple[int, ...], what: str, compiled: Compile
) -> None:
    assert isinstance(defined(expression, words), Undefined)
    made = artefact(kernel([expression], 1), ((WIDTH,), np.int32))
    program = compiled(made)
    with refused(Status.SCHEDULE_UNKNOWN, what):
        latency.step(program, V5E, Mesh(), {0: np.array(words, np.int32)})


@cache
def _expressions(kind: str, depth: int) -> st.SearchStrategy[Expression]:
    leaf = st.integers(0, INTEGERS - 1) if kind == "i" else st.integers(INTEGERS, INTEGERS + FLOATS - 1)
    if not depth:
        return leaf
    trees = [
        st.tuples(st.just(name), *(_expressions(operand, depth - 1) for operand in operation.operands))
        for name, operation in OPERATIONS.items()
        if operation.result == kind
    ]
    return st.one_of(*trees, leaf)


@pytest.mark.slow
@given(expressions=st.lists(_expressions("i", 3), min_size=8, max_size=8), seed=st.integers(0, 1000))
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_random_expressions_take_the_same_branches(expressions: list[Expression], seed: int, compiled: Compile) -> None:
    words = steps(expressions, 256, seed)
    assume(len(words) > 20)
    compare(expressions, words, compiled)


# --- other draws of what steers a kernel ---

GATHER = HONEST["embedding_gather"]


def run(cycles: int = 1000, **flow: Any) -> Timeline:
    """A modelled run of which cycles and control flow are given."""
    known = {"branches": {"t:1": (3, 5)}, "loops": {"t:2": 12}, "copies": {"t:3": 4}}
    return run_of(cycles=cycles, control=ControlFlow(**{**known, **flow}))


def keys(source: str) -> list[bytes]:
    artefact, problem = examined(source)
    code = Loaded(tokenise(artefact.program)[0], Options()).program.sha256
    return list(itertools.chain.from_iterable(control.seeds(problem, code)))


def test_draws_follow_from_the_program_and_not_from_its_comments() -> None:
    first = keys(GATHER)
    assert len(set(first)) == len(first) == sum(control.BATCHES)
    assert bytes(control.SEED_BYTES) not in first, "that of the public draw"
    assert keys(GATHER.replace("\nimport jax\n", "\n# A comment,\n# and another.\nimport jax\n", 1)) == first
    assert not set(
        keys(edited(GATHER, ("def kernel_fn(ids, table):\n", "def kernel_fn(ids, table):\n    ids = ids + 0\n")))
    ) & set(first)


SLOWER = 1500


@pytest.mark.parametrize(("other", "what"), [
    ({}, []),
    ({"branches": {"t:1": (2, 7)}, "loops": {"t:2": 20}, "copies": {"t:3": 1}}, []),
    ({"branches": {"t:1": (0, 8)}}, ["branch"]),
    ({"branches": {"t:1": (6, 0)}}, ["other branch"]),
    ({"loops": {"t:2": 0}}, ["loop"]),
    ({"loops": {"t:2": 25}}, ["loop"]),
    ({"copies": {"t:3": 4, "t:4": 1}}, ["copy"]),
])  # fmt: skip
def test_what_few_other_draws_do_is_named_where_they_are_slower(other: dict[str, Any], what: list[str]) -> None:
    assert [one.what for one in control.unlike(run(), [run(SLOWER, **other)] * 8)] == [*what, "cycles"]
    assert control.unlike(run(), [run(1015, **other)] * 8) == [], "no gain"
    assert control.unlike(run(), [run(10, **other)] * 8) == []


@pytest.mark.parametrize(("alike", "count"), [(4, 8), (6, 24), (15, 60)])
def test_one_draw_in_four_has_to_go_the_same_way(alike: int, count: int) -> None:
    """As many of the others are as fast as they have to be."""

    def places(alike: int) -> list[str]:
        fast = [run(1000, loops={"t:2": 90})] * 3
        others = [*fast, *[run(SLOWER)] * alike, *[run(SLOWER, loops={"t:2": 90})] * (count - alike - 3)]
        return [one.what for one in control.unlike(run(), others)]

    assert places(alike) == []
    assert places(alike - 1) == ["loop"]


@pytest.mark.parametrize(("fast", "count", "said"), [
    (1, 8, []), (0, 8, ["cycles"]), (2, 24, []), (1, 24, ["cycles"]), (3, 60, []), (2, 60, ["cycles"]),
])  # fmt: skip
def test_one_draw_in_twenty_has_to_be_as_fast(fast: int, count: int, said: list[str]) -> None:
    others = [run(1010)] * fast + [run(SLOWER)] * (count - fast)
    assert [one.what for one in control.unlike(run(), others)] == said


def test_three_draws_settle_a_kernel_that_is_as_slow_on_all() -> None:
    assert control.unlike(run(), [run(1000), run(1015), run(990)]) == []
    assert control.unlike(run(), [run(1000), run(1015), run(1030)]) != [], "more are asked for"


def test_who_meets_the_public_draw_by_chance_is_still_unlike() -> None:
    """A special case that one input in sixty falls into, too."""
    public = run(500, loops={"t:2": 0})
    others = [run(1000)] * 59 + [public]
    assert [one.what for one in control.unlike(public, others)] == ["loop", "cycles"]


def test_branches_that_nobody_knows_are_not_compared_but_cycles_are() -> None:
    public, other = (replace(run(cycles), control=None) for cycles in (1000, 2000))
    assert [one.what for one in control.unlike(public, [other] * 8)] == ["cycles"]


def test_a_refusal_names_the_place_and_what_differs() -> None:
    tokens = TokenTable(sources=(None, ("kernel.py", 40, 5)))
    others = [run(SLOWER, branches={"t:1": (then, 0)}) for then in (7, 8)] * 4
    refusal = control.refuse(control.unlike(run(branches={"t:1": (0, 8)}), others), tokens)
    assert refusal.status is Status.CONTROL_FLOW_DIFFERS
    what = (
        "the branch at kernel.py:40:5 is executed never with the public inputs, and mostly 8 times with 8 other draws"
    )
    assert refusal.message.startswith(what)
    slower = control.refuse(control.unlike(run(1000), [run(1300), run(1200)] * 4), tokens)
    assert "1,000 cycles with the public inputs, and mostly 1,250 or so with 8 other draws" in slower.message
