"""Random scalar expressions, as Pallas code and as ``ratchet.scalar`` defines them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet import scalar
from ratchet.scalar import LEAST, MOST, Undefined

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
    """One operation: types of its operands and its result (``i`` or ``f``), its definition, and how it is written."""

    operands: str
    result: str
    defined: Callable[..., scalar.Answer]
    written: Callable[..., Any]


def _to_integer(word: int) -> scalar.Answer:
    whole = scalar.float_ceil(word) if word < 0 else scalar.float_floor(word)
    return whole if isinstance(whole, Undefined) else scalar.float_to_integer(whole)


def _below(a: int, b: int) -> scalar.Answer:
    below = scalar.compare_float("lt", a, b)
    return below if isinstance(below, Undefined) else int(below)


OPERATIONS = {
    "add": Operation("ii", "i", scalar.add, operator.add),
    "subtract": Operation("ii", "i", scalar.subtract, operator.sub),
    "multiply": Operation("ii", "i", scalar.multiply, operator.mul),
    "shift left": Operation("ii", "i", scalar.shift_left, lax.shift_left),
    "shift right": Operation("ii", "i", scalar.shift_right_arithmetic, lax.shift_right_arithmetic),
    "shift right logical": Operation("ii", "i", scalar.shift_right_logical, lax.shift_right_logical),
    "and": Operation("ii", "i", operator.and_, operator.and_),
    "xor": Operation("ii", "i", operator.xor, operator.xor),
    "minimum": Operation("ii", "i", min, jnp.minimum),
    "maximum": Operation("ii", "i", max, jnp.maximum),
    "divide": Operation("ii", "i", scalar.divide_signed, lax.div),
    "remainder": Operation("ii", "i", scalar.remainder_signed, lax.rem),
    "to integer": Operation("f", "i", _to_integer, lambda x: x.astype(jnp.int32)),
    "below": Operation("ff", "i", _below, lambda a, b: (a < b).astype(jnp.int32)),
    "to float": Operation("i", "f", scalar.float_from_integer, lambda x: x.astype(jnp.float32)),
    "float add": Operation("ff", "f", scalar.float_add, operator.add),
    "float multiply": Operation("ff", "f", scalar.float_multiply, operator.mul),
    "float minimum": Operation("ff", "f", scalar.float_minimum, jnp.minimum),
    "float maximum": Operation("ff", "f", scalar.float_maximum, jnp.maximum),
    "floor": Operation("f", "f", scalar.float_floor, jnp.floor),
    "ceil": Operation("f", "f", scalar.float_ceil, jnp.ceil),
}

Expression = int | tuple[Any, ...]
"""A word of the step, by number, or an operation's name and its operands."""


def defined(expression: Expression, words: Sequence[int]) -> scalar.Answer:
    """The word that an expression is; undefined where a part of it is."""
    if isinstance(expression, int):
        return words[expression]
    name, *operands = expression
    values = [defined(operand, words) for operand in operands]
    return next((v for v in values if isinstance(v, Undefined)), None) or OPERATIONS[name].defined(*values)


def written(expression: Expression, words: Sequence[Any]) -> Any:
    """The expression in JAX."""
    if isinstance(expression, int):
        word = words[expression]
        return word if expression < INTEGERS else lax.bitcast_convert_type(word, jnp.float32)
    name, *operands = expression
    return OPERATIONS[name].written(*(written(operand, words) for operand in operands))


def steps(expressions: Sequence[Expression], count: int, seed: int) -> np.ndarray:
    """Words of ``count`` grid steps, int32[count, WIDTH], for which all expressions are defined; fewer if need be."""
    generator = np.random.default_rng(seed)
    integers = generator.choice(_INTEGERS, (8 * count, INTEGERS))
    floats = generator.choice(_FLOATS, (8 * count, FLOATS)).view(np.int32)
    rows = np.concatenate([integers, floats], axis=1)
    fine = [not any(isinstance(defined(e, list(map(int, row))), Undefined) for e in expressions) for row in rows]
    return rows[fine][:count]


def kernel(expressions: Sequence[Expression], count: int) -> Callable[..., Any]:
    """Takes int32[count * WIDTH], gives float32[count * ROWS, 128].

    In each grid step the row of an expression is 0 where it is not positive, otherwise 1 and the turns of a loop over
    its three lowest bits.
    """

    def body(s: Any, o: Any) -> None:
        o[...] = jnp.zeros_like(o)
        words = [s[pl.program_id(0) * WIDTH + j] for j in range(WIDTH)]
        for number, expression in enumerate(expressions):
            _row(o, number, written(expression, words))

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(count,), in_specs=[], out_specs=pl.BlockSpec((ROWS, 128), lambda i, s: (i, 0))
    )
    return pl.pallas_call(body, grid_spec=spec, out_shape=jax.ShapeDtypeStruct((count * ROWS, 128), jnp.float32))


def _row(o: Any, number: int, value: Any) -> None:
    @pl.when(value > 0)
    def _() -> None:
        one = jnp.ones((1, 128), jnp.float32)
        o[pl.ds(number, 1), :] = lax.fori_loop(0, value & 7, lambda _, x: x + one, one)


def rows(expressions: Sequence[Expression], words: np.ndarray) -> np.ndarray:
    """What the kernel gives, int[count, expressions]."""
    values = [[defined(e, list(map(int, row))) for e in expressions] for row in words]
    return np.array([[1 + (v & 7) if v > 0 else 0 for v in row] for row in values])  # type: ignore[operator]
