"""Scalar expressions, as Pallas code and as ``ratchet.tpu.scalar`` defines them, and random ones.

An expression is the number of a word of the grid step, or an operation's name and its operands. It has a type: ``i``
for an integer, ``f`` for a float, ``b`` for a truth value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu import scalar
from ratchet.tpu.scalar import LEAST, MOST, Undefined

INTEGERS, FLOATS = 3, 2
WIDTH = INTEGERS + FLOATS
"""Words of one grid step: integers, then the bits of floats."""
ROWS = 8
"""Expressions of one kernel, at most."""

_INTEGERS = np.array(
    [0, 1, 2, 3, 5, 7, 31, 32, 33, 40, 64, 1000, -1, -2, -5, -31, -32, -33, LEAST, LEAST + 1, MOST, 0x5BD1E995],
    np.int32,
)
_FLOATS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.7, 1e9, -1e9, 3e9, 1e-38, 1e38, -1e38, np.inf], np.float32)


@dataclass(frozen=True)
class Operation:
    """One operation: types of its operands and its result, its definition on words, and how it is written."""

    operands: str
    result: str
    defined: Callable[..., scalar.Answer]
    written: Callable[..., Any]


def _to_integer(word: int) -> scalar.Answer:
    whole = scalar.float_ceil(word) if word < 0 else scalar.float_floor(word)
    return whole if isinstance(whole, Undefined) else scalar.float_to_integer(whole)


def _repeated(count: int, start: int) -> int:
    for turn in range(count & 7):
        start = scalar.wrap((start ^ turn) * 3)
    return start


def _halvings(word: int) -> int:
    turns = 0
    while word > 1:
        word, turns = word >> 1, turns + 1
    return turns


def _written_repeated(count: Any, start: Any) -> Any:
    return lax.fori_loop(0, count & 7, lambda turn, word: (word ^ turn) * 3, start)


def _written_halvings(word: Any) -> Any:
    def body(state: Any) -> Any:
        return state[0] >> 1, state[1] + 1

    return lax.while_loop(lambda state: state[0] > 1, body, (word, jnp.int32(0)))[1]


OPERATIONS = {
    "add": Operation("ii", "i", scalar.add, operator.add),
    "subtract": Operation("ii", "i", scalar.subtract, operator.sub),
    "multiply": Operation("ii", "i", scalar.multiply, operator.mul),
    "shift left": Operation("ii", "i", scalar.shift_left, lax.shift_left),
    "shift right": Operation("ii", "i", scalar.shift_right_arithmetic, lax.shift_right_arithmetic),
    "shift right logical": Operation("ii", "i", scalar.shift_right_logical, lax.shift_right_logical),
    "and": Operation("ii", "i", operator.and_, operator.and_),
    "or": Operation("ii", "i", operator.or_, operator.or_),
    "xor": Operation("ii", "i", operator.xor, operator.xor),
    "minimum": Operation("ii", "i", min, jnp.minimum),
    "maximum": Operation("ii", "i", max, jnp.maximum),
    "divide": Operation("ii", "i", scalar.divide_signed, lax.div),
    "remainder": Operation("ii", "i", scalar.remainder_signed, lax.rem),
    "to integer": Operation("f", "i", _to_integer, lambda x: x.astype(jnp.int32)),
    "below": Operation("ff", "i", partial(scalar.compare_float, "lt"), lambda a, b: (a < b).astype(jnp.int32)),
    "to float": Operation("i", "f", scalar.float_from_integer, lambda x: x.astype(jnp.float32)),
    "float add": Operation("ff", "f", scalar.float_add, operator.add),
    "float subtract": Operation("ff", "f", scalar.float_subtract, operator.sub),
    "float multiply": Operation("ff", "f", scalar.float_multiply, operator.mul),
    "float minimum": Operation("ff", "f", scalar.float_minimum, jnp.minimum),
    "float maximum": Operation("ff", "f", scalar.float_maximum, jnp.maximum),
    "floor": Operation("f", "f", scalar.float_floor, jnp.floor),
    "ceil": Operation("f", "f", scalar.float_ceil, jnp.ceil),
    **{name: Operation("ii", "b", scalar.RELATIONS[name], getattr(operator, name)) for name in scalar.RELATIONS},
    **{
        f"float {name}": Operation("ff", "b", partial(scalar.compare_float, name), getattr(operator, name))
        for name in scalar.RELATIONS
    },
    "both": Operation("bb", "b", operator.and_, jnp.logical_and),
    "either": Operation("bb", "b", operator.or_, jnp.logical_or),
    "not": Operation("b", "b", lambda a: 1 - a, jnp.logical_not),
    "select": Operation("bii", "i", lambda c, a, b: a if c else b, jnp.where),
    "select float": Operation("bff", "f", lambda c, a, b: a if c else b, jnp.where),
    "branch": Operation("bii", "i", lambda c, a, b: a if c else scalar.add(b, 1),
                        lambda c, a, b: lax.cond(c, lambda: a, lambda: b + 1)),
    "repeated": Operation("ii", "i", _repeated, _written_repeated),
    "halvings": Operation("i", "i", _halvings, _written_halvings),
}  # fmt: skip

LOAD = "load"
"""The operation of one integer that loads the step's first or second word, by the lowest bit."""
Expression = int | tuple[Any, ...]


class StepWords:
    """The words of one grid step in scalar memory, from ``first`` on."""

    def __init__(self, memory: Any, first: Any) -> None:
        self._memory, self._first = memory, first

    def __getitem__(self, place: Any) -> Any:
        return self._memory[self._first + place]


def defined(expression: Expression, words: Sequence[int]) -> scalar.Answer:
    """The word that an expression is; undefined where a part of it is."""
    if isinstance(expression, int):
        return words[expression]
    name, *operands = expression
    values = [defined(operand, words) for operand in operands]
    undefined = next((v for v in values if isinstance(v, Undefined)), None)
    if undefined is not None:
        return undefined
    return applied(name, values, words)


def applied(name: str, values: Sequence[Any], words: Sequence[int]) -> scalar.Answer:
    """One operation on words."""
    answer = words[values[0] & 1] if name == LOAD else OPERATIONS[name].defined(*values)
    return answer if isinstance(answer, Undefined) else int(answer)


def written(expression: Expression, words: Any) -> Any:
    """The expression in JAX."""
    if isinstance(expression, int):
        word = words[expression]
        return word if expression < INTEGERS else lax.bitcast_convert_type(word, jnp.float32)
    name, *operands = expression
    values = [written(operand, words) for operand in operands]
    return words[values[0] & 1] if name == LOAD else OPERATIONS[name].written(*values)


def operations(expression: Expression) -> int:
    """How many operations an expression has."""
    return 0 if isinstance(expression, int) else 1 + sum(map(operations, expression[1:]))


def drawn(generator: np.random.Generator, kind: str, depth: int) -> Expression:
    """A random expression of a type, of at most ``depth`` operations one within the other."""
    if not depth and kind != "b":
        return int(generator.integers(0, INTEGERS) if kind == "i" else generator.integers(INTEGERS, WIDTH))
    known = [(name, one.operands) for name, one in OPERATIONS.items() if one.result == kind]
    if not depth:
        known = [("float lt", "ff"), ("ne", "ii")]
    elif kind == "i":
        known.append((LOAD, "i"))
    name, operands = known[generator.integers(len(known))]
    below = depth - 1 if depth else 0
    return name, *(drawn(generator, operand, int(generator.integers(0, below + 1))) for operand in operands)


def steps(expressions: Sequence[Expression], count: int, seed: int) -> np.ndarray:
    """Words of ``count`` grid steps, int32[count, WIDTH], for which all expressions are defined; fewer if need be."""
    rows = words_of(8 * count, np.random.default_rng(seed))
    fine = [not any(isinstance(defined(e, list(map(int, row))), Undefined) for e in expressions) for row in rows]
    return rows[fine][:count]


def words_of(count: int, generator: np.random.Generator) -> np.ndarray:
    """Awkward words of ``count`` grid steps, int32[count, WIDTH]."""
    integers = generator.choice(_INTEGERS, (count, INTEGERS))
    floats = generator.choice(_FLOATS, (count, FLOATS)).view(np.int32)
    return np.concatenate([integers, floats], axis=1)


def kernel(expressions: Sequence[Expression], count: int) -> Callable[..., Any]:
    """Takes int32[count * WIDTH], gives float32[count * ROWS, 128].

    In each grid step the row of an expression is 0 where it is not positive, otherwise 1 and the turns of a loop over
    its three lowest bits.
    """

    def body(s: Any, o: Any) -> None:
        o[...] = jnp.zeros_like(o)
        words = StepWords(s, pl.program_id(0) * WIDTH)
        for number, expression in enumerate(expressions):
            _row(o, number, written(expression, words))

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(count,), in_specs=[], out_specs=pl.BlockSpec((ROWS, 128), lambda i, s: (i, 0))
    )
    return pl.pallas_call(body, grid_spec=spec, out_shape=jax.ShapeDtypeStruct((count * ROWS, 128), jnp.float32))


def storing(
    expressions: Sequence[Expression], types: str, count: int, *, interpret: bool = False
) -> Callable[..., Any]:
    """Takes int32[count * WIDTH], gives int32[count * len(expressions)]: the words that the expressions are."""

    def body(s: Any, o: Any) -> None:
        step = pl.program_id(0)
        words = StepWords(s, step * WIDTH)
        for number, (kind, expression) in enumerate(zip(types, expressions, strict=True)):
            value = written(expression, words)
            if kind != "i":
                value = lax.bitcast_convert_type(value, jnp.int32) if kind == "f" else value.astype(jnp.int32)
            o[step * len(expressions) + number] = value

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(count,), in_specs=[], out_specs=pl.BlockSpec(memory_space=pltpu.SMEM)
    )
    out = jax.ShapeDtypeStruct((count * len(expressions),), jnp.int32)
    return pl.pallas_call(body, grid_spec=spec, out_shape=out, interpret=interpret)


def _row(o: Any, number: int, value: Any) -> None:
    @pl.when(value > 0)
    def _() -> None:
        one = jnp.ones((1, 128), jnp.float32)
        o[pl.ds(number, 1), :] = lax.fori_loop(0, value & 7, lambda _, x: x + one, one)


def rows(expressions: Sequence[Expression], words: np.ndarray) -> np.ndarray:
    """What the kernel gives, int[count, expressions]."""
    values = [[defined(e, list(map(int, row))) for e in expressions] for row in words]
    return np.array([[1 + (v & 7) if v > 0 else 0 for v in row] for row in values])  # type: ignore[operator]
