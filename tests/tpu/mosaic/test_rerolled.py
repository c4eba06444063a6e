"""Unrolled loops are executed as loops, and nothing that is said of a kernel depends on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from ratchet.tpu.mosaic.rerolled import Rolled
from ratchet.tpu.mosaic.run import Loaded, translated
from ratchet.tpu.mosaic.state import Options
from tests.tiers import cases
from tests.tpu.mosaic.twin import loaded

# --- which operations are turns of a loop ---------------------------------------------------------

INDEX, ARRAY = Type(kind="scalar", dtype="i32"), Type(kind="memref", shape=(64, 128), dtype="f32", space="vmem")
HERE = "kernel.py:7"


def op(name: str, *operands: Value, results: Sequence[Type] = (), at: str = HERE, **attributes: Any) -> Op:
    made = Op(name, operands, tuple(map(Value, results)), attributes, (), at)
    for value in made.results:
        value.owner = made
    return made


@dataclass
class Written:
    """A block that is written operation by operation."""

    source: Value = field(default_factory=lambda: Value(ARRAY))
    target: Value = field(default_factory=lambda: Value(ARRAY))
    operations: list[Op] = field(default_factory=list)

    def add(self, name: str, *operands: Value, results: Sequence[Type] = (), at: str = HERE, **attributes: Any) -> Any:
        made = op(name, *operands, results=results, at=at, **attributes)
        self.operations.append(made)
        return made.results[0] if made.results else None

    def constant(self, number: int) -> Any:
        return self.add("arith.constant", results=[INDEX], value=number)

    def part(self, of: Value, at: Value) -> Any:
        return self.add("tpu.memref_slice", of, at, results=[ARRAY], operandSegmentSizes=[1, 1, 0])

    def start(self, source: Value, target: Value, at: str = HERE) -> None:
        self.add("tpu.enqueue_dma", source, target, operandSegmentSizes=[1, 0, 1, 1, 0, 0], at=at)

    def turns(self, numbers: Sequence[int]) -> list[Value]:
        """Copies from these places; the slices that they read."""
        slices = []
        for number in numbers:
            slices.append(self.part(self.source, self.constant(number)))
            self.start(slices[-1], self.target)
        return slices

    def loops(self) -> dict[int, Rolled]:
        return rerolled.rolled(Block((), tuple(self.operations)))


def test_operations_that_differ_in_constants_are_turns() -> None:
    block = Written()
    block.turns([3, 1, 4, 1, 5])
    ((place, loop),) = block.loops().items()
    assert (place, loop.length, len(loop.turns)) == (0, 15, 5)
    constants = [one.results[0] for one in block.operations[::3]]
    assert loop.given == (tuple(constants),)
    assert loop.constants == {block.operations[0]}
    assert (loop.left, loop.again) == ((), ())


def test_what_is_before_and_between_is_no_turn() -> None:
    block = Written()
    block.constant(9)
    block.turns([0, 8, 16, 24])
    block.add("vector.store", at=HERE)
    block.turns([0, 8, 16])
    block.turns([24, 32])
    assert {place: (len(loop.turns[0]), len(loop.turns)) for place, loop in block.loops().items()} == {
        1: (3, 4),
        14: (3, 5),
    }


def test_the_same_constant_in_every_turn_stays_one() -> None:
    block = Written()
    block.turns([8, 8, 8, 8])
    (loop,) = block.loops().values()
    assert (loop.given, loop.constants) == ((), frozenset())


def test_turns_may_be_on_lines_of_their_own() -> None:
    block = Written()
    for number in range(4):
        block.start(block.part(block.source, block.constant(0)), block.target, at=f"kernel.py:{number}")
    (loop,) = block.loops().values()
    assert [one.location for one in loop.others[block.operations[2]]] == [f"kernel.py:{n}" for n in range(4)]


def test_a_scalar_from_before_may_be_another_in_each_turn() -> None:
    block, numbers = Written(), [Value(INDEX) for _ in range(4)]
    for number in numbers:
        block.start(block.part(block.source, number), block.target)
    (loop,) = block.loops().values()
    assert loop.given == (tuple(numbers),)


def another_target(block: Written, _: int, __: list[Any]) -> None:
    block.start(block.part(block.source, block.constant(0)), Value(ARRAY))


def a_sum_that_is_carried(block: Written, _: int, made: list[Any]) -> None:
    made.append(block.add("arith.addi", made[-1], block.constant(8), results=[INDEX]))
    block.start(block.part(block.source, made[-1]), block.target)


def a_view_of_the_turn_before(block: Written, _: int, made: list[Any]) -> None:
    made.append(block.part(block.source, block.constant(0)))
    block.start(made[-2] if len(made) > 1 and made[-2].type == ARRAY else made[-1], block.target)


def one_scalar_as_two(block: Written, turn: int, made: list[Any]) -> None:
    """What is one value in the first turn is another at its second place in the others."""
    own, other = Value(INDEX), Value(INDEX)
    block.start(block.part(block.part(block.source, own), own if not turn else other), block.target)


def nothing_moves(block: Written, turn: int, _: list[Any]) -> None:
    block.part(block.source, block.constant(turn))


def to_another_chip(block: Written, turn: int, made: list[Any]) -> None:
    place = block.part(block.source, block.constant(turn))
    block.add("tpu.enqueue_dma", place, block.target, made[0], operandSegmentSizes=[1, 0, 1, 0, 1, 0])


def vectors(block: Written, turn: int, _: list[Any]) -> None:
    vector = Type(kind="vector", shape=(8, 128), dtype="f32")
    block.add("arith.negf", Value(vector), results=[vector])
    block.start(block.part(block.source, block.constant(turn)), block.target)


@pytest.mark.parametrize(
    "turn",
    [
        another_target,
        a_sum_that_is_carried,
        a_view_of_the_turn_before,
        one_scalar_as_two,
        nothing_moves,
        to_another_chip,
        vectors,
    ],
)
def test_what_is_no_loop(turn: Callable[[Written, int, list[Any]], None]) -> None:
    block, made = Written(), [Value(INDEX)]
    for number in range(rerolled.FEWEST):
        turn(block, number, made)
    assert block.loops() == {}


def test_three_turns_are_not_worth_a_loop() -> None:
    block = Written()
    block.turns([0, 8, 16])
    assert block.loops() == {}


def test_what_is_used_behind_the_loop_is_left_or_made_again() -> None:
    block, table = Written(), Value(Type(kind="memref", shape=(8,), dtype="i32", space="smem"))
    slices = []
    for number in range(4):
        page = block.add("memref.load", table, block.constant(number), results=[INDEX])
        slices.append(block.part(block.source, page))
        block.start(slices[-1], block.target)
    block.add("tpu.wait_dma2", slices[2])
    (loop,) = block.loops().values()
    assert loop.again == (slices[2].owner,)
    assert loop.left == (tuple(view.owner.operands[1] for view in slices),)


# --- kernels --------------------------------------------------------------------------------------

TABLE = np.array([5, 0, 3, 3, 7, 1, 6, 2], np.int32)
X = np.random.default_rng(1).normal(size=(64, 128)).astype(np.float32)
ANY = pl.BlockSpec(memory_space=pl.ANY)
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

    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(2,),
            in_specs=[ANY],
            out_specs=pl.BlockSpec((64, 128), lambda i, table: (0, 0)),
            scratch_shapes=[pltpu.VMEM((64, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))],
        ),
        out_shape=jax.ShapeDtypeStruct((64, 128), jnp.float32),
    )


SOUND: dict[str, dict[str, Any]] = {
    "a loop of starts and one of waits": {},
    "semaphores by turns": {"semaphores": (0, 1) * 4},
    "behind conditions": {"guarded": True},
    "places out of order": {"places": (7, 1, 0, 2, 6, 5, 4, 3)},
}
PLANTED: dict[str, tuple[dict[str, Any], np.ndarray, Kind]] = {
    "one is never waited for": ({"waits": COUNT - 1}, TABLE, Kind.NEVER_WAITED),
    "two into one place": ({"places": (0, 1, 2, 3, 3, 5, 6, 7)}, TABLE, Kind.TARGET_OVERWRITTEN),
    "read before they arrive": ({"early": True}, TABLE, Kind.READ_BEFORE_WAIT),
    "one from outside": ({}, np.where(TABLE == 7, 8, TABLE).astype(np.int32), Kind.SLICE_OUT_OF_BOUNDS),
    "one from outside, behind a condition": (
        {"guarded": True}, np.where(TABLE == 1, -1, TABLE).astype(np.int32), Kind.SLICE_OUT_OF_BOUNDS,
    ),
}  # fmt: skip


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Rolled]]:
    """The loops that the executor finds from now on."""
    found: list[Rolled] = []

    def noted(block: Block) -> dict[int, Rolled]:
        here = rerolled.rolled(block)
        found.extend(here.values())
        return here

    monkeypatch.setattr(executor, "rolled", noted)
    return found


def in_its_own_places(function: Callable[..., Any], *arrays: np.ndarray) -> Loaded:
    """A program whose every operation has a place of its own, as the judge executes it."""
    exported, _ = tokenise(loaded(function, *arrays).exported.serialize())
    return translated(exported, Options())


def both(monkeypatch: pytest.MonkeyPatch, loops: list[Rolled], options: dict[str, Any], table: np.ndarray) -> Any:
    """What is said of a kernel whose unrolled loops are executed as loops; the same as if they were not."""
    results = []
    for fewest in (rerolled.FEWEST, 1000):
        monkeypatch.setattr(rerolled, "FEWEST", fewest)
        loops.clear()
        results.append(in_its_own_places(gather(**options), table, X).check([table, X]))
        assert bool(loops) == (fewest < 1000)
    got, wanted = results
    np.testing.assert_array_equal(got.outputs[0], wanted.outputs[0])
    assert (got.findings, got.control) == (wanted.findings, wanted.control)
    return got


@pytest.mark.parametrize("name", cases(("semaphores by turns", "behind conditions"), SOUND))
def test_a_sound_kernel_copies_what_the_table_says(
    name: str, loops: list[Rolled], monkeypatch: pytest.MonkeyPatch
) -> None:
    got = both(monkeypatch, loops, SOUND[name], TABLE)
    copied = [n for n in range(COUNT) if TABLE[n] < 6 or "guarded" not in SOUND[name]]
    places = SOUND[name].get("places", range(COUNT))
    wanted = np.zeros_like(X)
    for n in copied:
        wanted[places[n] * 8 : places[n] * 8 + 8] = X[TABLE[n] * 8 : TABLE[n] * 8 + 8]
    assert got.findings == ()
    np.testing.assert_array_equal(got.outputs[0], wanted)
    assert sorted(got.control.copies.values()) == [0] * (COUNT - len(copied)) + [2] * len(copied), "of two steps"


@pytest.mark.parametrize("name", cases(("two into one place", "one from outside, behind a condition"), PLANTED))
def test_a_planted_bug_is_the_same_finding(name: str, loops: list[Rolled], monkeypatch: pytest.MonkeyPatch) -> None:
    options, table, kind = PLANTED[name]
    got = both(monkeypatch, loops, options, table)
    assert kind in {finding.kind for finding in got.findings}
