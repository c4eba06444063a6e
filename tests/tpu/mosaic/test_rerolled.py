"""Unrolled loops are executed as loops, and the fast path says of a kernel what the plain one says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.mlir.module import Block, Op, Type, Value
from ratchet.tpu.mosaic import executor, rerolled
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.rerolled import Loop
from ratchet.tpu.mosaic.run import translated
from ratchet.tpu.mosaic.state import Options
from tests.tiers import cases
from tests.tpu.mosaic.kernels import ANY, with_scalars

# --- which operations are iterations of a loop ----------------------------------------------------

INDEX, ARRAY = Type(kind="scalar", dtype="i32"), Type(kind="memref", shape=(64, 128), dtype="f32", space="vmem")
TABLE_TYPE = Type(kind="memref", shape=(8,), dtype="i32", space="smem")
HERE = "kernel.py:7"


@dataclass
class Written:
    """A block that is written operation by operation."""

    source: Value = field(default_factory=lambda: Value(ARRAY))
    target: Value = field(default_factory=lambda: Value(ARRAY))
    operations: list[Op] = field(default_factory=list)

    def add(self, name: str, *operands: Value, results: Sequence[Type] = (), at: str = HERE, **attributes: Any) -> Any:
        made = Op(name, operands, tuple(map(Value, results)), attributes, (), at)
        for value in made.results:
            value.owner = made
        self.operations.append(made)
        return made.results[0] if made.results else None

    def constant(self, number: int) -> Any:
        return self.add("arith.constant", results=[INDEX], value=number)

    def part(self, of: Value, at: Value) -> Any:
        return self.add("tpu.memref_slice", of, at, results=[ARRAY], operandSegmentSizes=[1, 1, 0])

    def start(self, source: Value, target: Value, at: str = HERE) -> None:
        self.add("tpu.enqueue_dma", source, target, operandSegmentSizes=[1, 0, 1, 1, 0, 0], at=at)

    def copies(self, *numbers: int) -> None:
        """Copies from these places."""
        for number in numbers:
            self.start(self.part(self.source, self.constant(number)), self.target)

    def loops(self) -> dict[int, Loop]:
        return rerolled.loops_of(Block((), tuple(self.operations)))


def test_operations_that_differ_in_constants_are_iterations() -> None:
    block = Written()
    block.copies(3, 1, 4, 1, 5)
    ((place, loop),) = block.loops().items()
    assert (place, loop.length, len(loop.iterations)) == (0, 15, 5)
    assert loop.given == (tuple(one.results[0] for one in block.operations[::3]),)
    assert loop.constants == {block.operations[0]}
    assert (loop.left, loop.again) == ((), ())


def test_what_is_before_and_between_is_in_no_loop() -> None:
    block = Written()
    block.constant(9)
    block.copies(0, 8, 16, 24)
    block.add("vector.store")
    block.copies(0, 8, 16, 24, 32)
    block.add("vector.store")
    block.copies(0, 8, 16)  # three are not worth a loop
    assert {place: (len(loop.iterations[0]), len(loop.iterations)) for place, loop in block.loops().items()} == {
        1: (3, 4),
        14: (3, 5),
    }


def test_the_same_constant_in_every_iteration_stays_one() -> None:
    block = Written()
    block.copies(8, 8, 8, 8)
    (loop,) = block.loops().values()
    assert (loop.given, loop.constants) == ((), frozenset())


def test_lines_and_scalars_from_before_may_differ() -> None:
    block, numbers = Written(), [Value(INDEX) for _ in range(4)]
    for line, number in enumerate(numbers):
        block.start(block.part(block.source, number), block.target, at=f"kernel.py:{line}")
    (loop,) = block.loops().values()
    assert [one.location for one in loop.others[block.operations[1]]] == [f"kernel.py:{n}" for n in range(4)]
    assert loop.given == (tuple(numbers),)


def test_what_is_used_behind_the_loop_is_left_or_made_again() -> None:
    block, table = Written(), Value(TABLE_TYPE)
    slices = []
    for number in range(4):
        page = block.add("memref.load", table, block.constant(number), results=[INDEX])
        slices.append(block.part(block.source, page))
        block.start(slices[-1], block.target)
    block.add("tpu.wait_dma2", slices[2])
    (loop,) = block.loops().values()
    assert loop.again == (slices[2].owner,)
    assert loop.left == (tuple(view.owner.operands[1] for view in slices),)


def another_target(block: Written, _: int, __: list[Any]) -> None:
    block.start(block.part(block.source, block.constant(0)), Value(ARRAY))


def a_sum_that_is_carried(block: Written, _: int, made: list[Any]) -> None:
    made.append(block.add("arith.addi", made[-1], block.constant(8), results=[INDEX]))
    block.start(block.part(block.source, made[-1]), block.target)


def a_view_of_the_one_before(block: Written, _: int, made: list[Any]) -> None:
    made.append(block.part(block.source, block.constant(0)))
    block.start(made[-2] if len(made) > 1 and made[-2].type == ARRAY else made[-1], block.target)


def one_scalar_as_two(block: Written, number: int, _: list[Any]) -> None:
    """What is one value in the first iteration is another at its second place in the others."""
    own, other = Value(INDEX), Value(INDEX)
    block.start(block.part(block.part(block.source, own), own if not number else other), block.target)


def nothing_moves(block: Written, number: int, _: list[Any]) -> None:
    block.part(block.source, block.constant(number))


def to_another_chip(block: Written, number: int, made: list[Any]) -> None:
    place = block.part(block.source, block.constant(number))
    block.add("tpu.enqueue_dma", place, block.target, made[0], operandSegmentSizes=[1, 0, 1, 0, 1, 0])


def vectors(block: Written, number: int, _: list[Any]) -> None:
    vector = Type(kind="vector", shape=(8, 128), dtype="f32")
    block.add("arith.negf", Value(vector), results=[vector])
    block.start(block.part(block.source, block.constant(number)), block.target)


@pytest.mark.parametrize("write", [
    another_target, a_sum_that_is_carried, a_view_of_the_one_before, one_scalar_as_two, nothing_moves, to_another_chip,
    vectors,
])  # fmt: skip
def test_what_is_no_loop(write: Callable[[Written, int, list[Any]], None]) -> None:
    block, made = Written(), [Value(INDEX)]
    for number in range(rerolled.FEWEST):
        write(block, number, made)
    assert block.loops() == {}


# --- kernels, on the fast path and on the plain one -----------------------------------------------

TABLE = np.array([5, 0, 3, 3, 7, 1, 6, 2], np.int32)
X = np.random.default_rng(1).normal(size=(64, 128)).astype(np.float32)
COUNT = 8


def gather(
    *,
    places: Sequence[int] = range(COUNT),
    semaphores: Sequence[int] = (0,) * COUNT,
    waits: int = COUNT,
    guarded: bool = False,
    early: bool = False,
) -> Callable[..., Any]:
    """Copies groups of eight rows that a table names, by copies that a Python loop starts and another waits for."""

    def kernel(table: Any, x: Any, o: Any, buffer: Any, sems: Any) -> None:
        buffer[...] = jnp.zeros_like(buffer)

        def copy(n: int) -> Any:
            rows = pl.multiple_of(table[n] * 8, 8)
            into = buffer.at[pl.ds(places[n] * 8, 8)]
            return pltpu.make_async_copy(x.at[pl.ds(rows, 8)], into, sems.at[semaphores[n]])

        def each(count: int, do: Callable[[Any], None]) -> None:
            for n in range(count):
                if guarded:
                    pl.when(table[n] < 6)(lambda n=n: do(copy(n)))
                else:
                    do(copy(n))

        each(COUNT, lambda one: one.start())
        if early:
            o[...] = buffer[...]
        each(waits, lambda one: one.wait())
        if not early:
            o[...] = buffer[...]

    whole, scratch = pl.BlockSpec((64, 128), lambda i, table: (0, 0)), pltpu.VMEM((64, 128), jnp.float32)
    return with_scalars(kernel, grid=(2,), ins=[ANY], out=whole, scratch=[scratch, pltpu.SemaphoreType.DMA((2,))])


CASES: dict[str, tuple[dict[str, Any], np.ndarray, Kind | None]] = {
    "a loop of starts and one of waits": ({}, TABLE, None),
    "semaphores by turns": ({"semaphores": (0, 1) * 4}, TABLE, None),
    "behind conditions": ({"guarded": True}, TABLE, None),
    "places out of order": ({"places": (7, 1, 0, 2, 6, 5, 4, 3)}, TABLE, None),
    "one is never waited for": ({"waits": COUNT - 1}, TABLE, Kind.DMA_NEVER_WAITED),
    "two into one place": ({"places": (0, 1, 2, 3, 3, 5, 6, 7)}, TABLE, Kind.TARGET_OVERWRITTEN),
    "read before they arrive": ({"early": True}, TABLE, Kind.READ_BEFORE_WAIT),
    "one from outside": ({}, np.where(TABLE == 7, 8, TABLE).astype(np.int32), Kind.SLICE_OUT_OF_BOUNDS),
    "one from outside, behind a condition": (
        {"guarded": True}, np.where(TABLE == 1, -1, TABLE).astype(np.int32), Kind.SLICE_OUT_OF_BOUNDS,
    ),
}  # fmt: skip
QUICK = ("semaphores by turns", "behind conditions", "two into one place", "one from outside, behind a condition")


@pytest.mark.parametrize("name", cases(QUICK, CASES))
def test_the_fast_path_says_what_the_plain_one_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, table, kind = CASES[name]
    asked: list[dict[int, Loop]] = []
    monkeypatch.setattr(executor, "loops_of", lambda block: asked.append(rerolled.loops_of(block)) or asked[-1])
    exported, _ = tokenise(jax.export.export(jax.jit(gather(**options)), platforms=("tpu",))(table, X).serialize())
    got = translated(exported, Options()).check([table, X])
    assert any(asked)
    asked.clear()
    wanted = translated(exported, Options(fast=False)).check([table, X])
    assert not asked
    np.testing.assert_array_equal(got.outputs[0], wanted.outputs[0])
    assert (got.findings, got.control) == (wanted.findings, wanted.control)
    if kind is not None:
        assert kind in {finding.kind for finding in got.findings}
        return
    copied = [n for n in range(COUNT) if TABLE[n] < 6 or "guarded" not in options]
    places, rows = options.get("places", range(COUNT)), np.zeros_like(X)
    for n in copied:
        rows[places[n] * 8 : places[n] * 8 + 8] = X[TABLE[n] * 8 : TABLE[n] * 8 + 8]
    assert got.findings == ()
    np.testing.assert_array_equal(got.outputs[0], rows)
    assert sorted(got.control.copies.values()) == [0] * (COUNT - len(copied)) + [2] * len(copied), "of two steps"
