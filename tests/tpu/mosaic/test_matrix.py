"""Explicit operations of the matrix units: products against numpy, and what a kernel may not do with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.state import Options
from ratchet.values.status import Status
from tests.imports import OLDER_JAX
from tests.refusals import refused
from tests.tpu.mosaic.kernels import loaded
from tests.tpu.mosaic.modules import TENSOR_CORE, Executed, execute, module

DRAW = np.random.default_rng(0)
X, Y, Z = (DRAW.integers(-8, 8, shape).astype(jnp.bfloat16) for shape in ((16, 256), (256, 256), (256, 256)))
BFLOATS, FLOATS = "16x256xbf16", "16x256xf32"
ZERO = np.zeros((16, 256), np.float32)


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) @ y.astype(np.float64)


def push(value: str, *, unit: int = 0, register: int = 0, transpose: bool = False) -> str:
    attributes = f"mxu_index = {unit} : i32, staging_register = {register} : i32, transpose = {str(transpose).lower()}"
    return f'"tpu.matmul_push_rhs"({value}) <{{{attributes}}}> : (vector<256x256xbf16>) -> ()'


def multiply(*, unit: int = 0, register: int | None = 0, acc: int = 0) -> str:
    staged = "" if register is None else f", load_staged_rhs = {register} : i32"
    attributes = f"acc = {acc} : i32, mxu_index = {unit} : i32{staged}"
    return f'"tpu.matmul_acc_lhs"(%x) <{{{attributes}}}> : (vector<{BFLOATS}>) -> ()'


def pop(name: str, *, unit: int = 0, acc: int = 0) -> str:
    return f'{name} = "tpu.matmul_pop"() <{{acc = {acc} : i32, mxu_index = {unit} : i32}}> : () -> vector<{FLOATS}>'


def store(name: str, operand: int) -> str:
    return f"vector.store {name}, %{operand}[%c0, %c0] : M{operand}, vector<{FLOATS}>"


def run(*lines: str) -> Executed:
    """A kernel over ``%x`` (16x256), ``%y`` and ``%z`` (256x256), with outputs 3 and 4."""
    operands = [BFLOATS, "256x256xbf16", "256x256xbf16", FLOATS, FLOATS]
    begin = ["%c0 = arith.constant 0 : index", "%c1 = arith.constant 1 : index", "%c3 = arith.constant 3 : index"]
    begin += [
        f"%{name} = vector.load %{number}[%c0, %c0] : M{number}, vector<{operands[number]}>"
        for number, name in enumerate("xyz")
    ]
    return execute(module(operands, "\n".join([*begin, *lines]), TENSOR_CORE), X, Y, Z, ZERO, ZERO)


def test_what_is_pushed_is_multiplied_by_and_popped() -> None:
    result = run(push("%y"), multiply(), pop("%r"), store("%r", 3), pop("%s"), store("%s", 4))
    np.testing.assert_array_equal(result.memory[3], product(X, Y))
    np.testing.assert_array_equal(result.memory[4], 0, "what was popped is zero from then on")
    assert result.findings == []


def test_a_pushed_matrix_may_be_transposed() -> None:
    result = run(push("%y", transpose=True), multiply(), pop("%r"), store("%r", 3))
    np.testing.assert_array_equal(result.memory[3], product(X, Y.T))


def test_products_accumulate_and_a_loaded_matrix_stays() -> None:
    result = run(
        push("%y"), push("%z", register=1), multiply(), multiply(register=None), multiply(register=1), pop("%r"),
        store("%r", 3),
    )  # fmt: skip
    np.testing.assert_array_equal(result.memory[3], 2 * product(X, Y) + product(X, Z))
    assert result.findings == []


def test_units_and_accumulators_are_apart() -> None:
    result = run(
        push("%y"), push("%z", unit=1), multiply(), multiply(unit=1, acc=64), pop("%r"), pop("%s", unit=1, acc=64),
        store("%r", 3), store("%s", 4),
    )  # fmt: skip
    np.testing.assert_array_equal(result.memory[3], product(X, Y))
    np.testing.assert_array_equal(result.memory[4], product(X, Z))


def test_a_loop_goes_on_with_what_was_staged_before_it() -> None:
    result = run(
        push("%y"), "scf.for %i = %c0 to %c3 step %c1 {", multiply(), push("%z"), "}", multiply(), pop("%r"),
        store("%r", 3),
    )  # fmt: skip
    np.testing.assert_array_equal(result.memory[3], product(X, Y) + 3 * product(X, Z))
    assert result.findings == []


@pytest.mark.parametrize("taken", [False, True])
def test_a_device_that_does_not_take_the_branch_pushes_nothing(taken: bool) -> None:
    body = '%y = "arith.constant"() {value = dense<0.0> : vector<256x256xbf16>} : () -> vector<256x256xbf16>'
    kernel = module([FLOATS], f"{body}\n{push('%y')}", TENSOR_CORE)
    (main,) = kernel.functions.values()
    executor = Executor(kernel=kernel, options=Options(), fill=jnp.int32(0), padding=jnp.int32(0))
    executor.active = jnp.bool_(taken)
    for op in main.body.operations[:2]:
        executor.execute(op)
    assert int(executor.memory[executor.units[0].staging[0].full]) == taken


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([push("%y"), push("%z"), multiply(), pop("%r")], Kind.MATRIX_UNIT),
        ([multiply(), push("%y"), multiply(), pop("%r")], Kind.MATRIX_UNIT),
        ([multiply(register=None), push("%y"), multiply(), pop("%r")], Kind.MATRIX_UNIT),
        ([push("%y"), multiply(), pop("%r"), push("%z")], Kind.UNDEFINED_VECTOR),
        ([push("%y"), multiply(), pop("%r"), multiply(register=None)], Kind.UNDEFINED_VECTOR),
    ],
    ids=["pushed-twice", "never-staged", "never-loaded", "left-staged", "left-accumulated"],
)
def test_what_a_kernel_may_not_do_is_a_finding(lines: Sequence[str], kind: Kind) -> None:
    assert [one.kind for one in run(*lines, store("%r", 3)).findings] == [kind]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([push("%y"), multiply(acc=8), pop("%r"), pop("%s", acc=2)], "not pushed to, loaded and popped alike"),
        ([push("%y"), multiply(), multiply(acc=2), pop("%r"), pop("%s", acc=2)], "overlap"),
    ],
)
def test_what_cannot_be_followed_is_refused(lines: Sequence[str], why: str) -> None:
    with refused(Status.CANNOT_VERIFY, why):
        run(*lines, store("%r", 3))


@pytest.mark.skipif(not OLDER_JAX, reason="JAX 0.12 gives accumulators by reference")
def test_a_kernel_of_pallas_with_a_grid_is_executed() -> None:
    def kernel(x: Any, y: Any, o: Any) -> None:
        pltpu.matmul_push_rhs(y[...], 0, 0)
        pltpu.matmul_acc_lhs(0, x[...], 0, load_staged_rhs=0)
        o[...] = pltpu.matmul_pop(0, (16, 256), jnp.float32, 0)

    x = np.concatenate([X, -X])
    rows = pl.BlockSpec((16, 256), lambda i: (i, 0))
    call = pl.pallas_call(
        kernel, grid=(2,), in_specs=[rows, pl.BlockSpec((256, 256), lambda i: (0, 0))], out_specs=rows,
        out_shape=jax.ShapeDtypeStruct((32, 256), jnp.float32),
    )  # fmt: skip
    result = loaded(call, x, Y).check([x, Y])
    np.testing.assert_array_equal(result.outputs[0], product(x, Y))
    assert result.findings == ()
