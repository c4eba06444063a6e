"""The machine and the executor go the same way through a kernel, and a difference is refused."""

from __future__ import annotations

import base64
import hashlib
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
from tests.exam.judge.programs import artefact
from tests.refusals import refused_as

FLOW = ControlFlow(branches={"t:1": (3, 5)}, loops={"t:2": 12}, copies={"t:3": 4, "t:4": 0})
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


def compiled_kernel(body: bytes) -> HloModule:
    """A compiled program with one kernel, of which only its Mosaic module is given."""
    config = json.dumps({"custom_call_config": {"body": base64.b64encode(body).decode()}}).encode()
    fields: dict[str, Any] = {"types": (), "is_tuple": False, "operands": (), "computation": "main", "is_root": True}
    op = HloOp(name="kernel_0.1", opcode="custom-call", target=KERNEL, backend_config=config, **fields)
    return HloModule(ops={op.name: op}, entry="main")


def test_a_compiled_kernel_is_one_that_was_executed() -> None:
    executed = frozenset({hashlib.sha256(b"the module").hexdigest()})
    control.same_modules(executed, compiled_kernel(b"the module"))
    with refused_as(
        Status.CANNOT_VERIFY, match=r"kernel_0\.1 of the compiled program is none of the 1 that were executed"
    ):
        control.same_modules(executed, compiled_kernel(b"another"))


def timeline(*flows: ControlFlow | None) -> Timeline:
    """A run of as many chips, of which only control flow is given."""
    empty: dict[str, Any] = dict.fromkeys(Timeline.__dataclass_fields__, 0)
    chips = [Timeline(**{**empty, "chips": (), "control": flow}) for flow in flows]
    return replace(chips[0], chips=tuple(chips) if len(chips) > 1 else ())


def test_the_step_says_both_numbers_and_the_source_line() -> None:
    tokens = TokenTable(sources=(None, ("kernel.py", 40, 5)))
    other = replace(FLOW, branches={"t:1": (0, 8)})
    with refused_as(
        Status.CONTROL_FLOW_DIFFERS, match=r"branch at kernel\.py:40.* 3 times .* 5 times .* 0 and 8 times"
    ):
        control.step(FLOW, timeline(other), tokens)
    assert control.step(FLOW, timeline(FLOW), tokens)[0] == 4


def test_of_several_chips_the_most_counts() -> None:
    less = ControlFlow(branches={"t:1": (1, 5)}, loops={"t:2": 12}, copies={"t:3": 4})
    assert control.of_chips(timeline(less, replace(less, branches={"t:1": (3, 2)}))) == replace(
        less, branches={"t:1": (3, 5)}
    )
    assert control.of_chips(timeline(less, None)) is None
    assert control.step(FLOW, timeline(None), TokenTable())[0] == 0


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
    with refused_as(Status.SCHEDULE_UNKNOWN, match=what):
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
