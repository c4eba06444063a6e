"""Scalar arithmetic written a second time, by numpy on whole arrays, for nothing but to be compared.

Integers are int32 arrays of words. Floats are computed twice, with denormals kept and with denormals flushed; where the
two differ nobody knows what the hardware gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Integers = Callable[..., Array]
Floats = Callable[..., Array]
TINY = np.float32(2.0**-126)
"""The smallest normal number."""


def unsigned(words: Array) -> Array:
    return words.view(np.uint32).astype(np.uint64)


def signed(numbers: Array) -> Array:
    """The lowest 32 bits."""
    return (numbers.astype(np.uint64) & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)


def _shifted(shift: Callable[[Array, Array], Array], beyond: Callable[[Array], Array]) -> Integers:
    def run(a: Array, b: Array) -> Array:
        amount = unsigned(b)
        inside = shift(a, np.minimum(amount, 31).astype(np.int64))
        return np.where(amount < 32, inside, beyond(a)).astype(np.int32)

    return run


def _rest(a: Array, b: Array) -> Array:
    """The C remainder; 1 in the place of a zero divisor."""
    return np.fmod(a.astype(np.int64), np.where(b == 0, 1, b.astype(np.int64)))


def _quotient(a: Array, b: Array) -> Array:
    divisor = np.where(b == 0, 1, b.astype(np.int64))
    return signed(((a.astype(np.int64) - _rest(a, b)) // divisor).astype(np.int64))


def _zeros(a: Array) -> Array:
    bits = np.unpackbits(a.astype(">i4").view(np.uint8).reshape(-1, 4), axis=1)
    return np.where(bits.any(axis=1), bits.argmax(axis=1), 32).astype(np.int32)


INTEGERS: dict[str, Integers] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "multiply_high": lambda a, b: (unsigned(a) * unsigned(b) >> np.uint64(32)).astype(np.uint32).view(np.int32),
    "carry": lambda a, b: (unsigned(a) + unsigned(b) >> np.uint64(32)).astype(np.int32),
    "shift_left": _shifted(lambda a, n: signed(unsigned(a) << n.astype(np.uint64)), np.zeros_like),
    "shift_left_ones": _shifted(
        lambda a, n: signed(~(unsigned(~a) << n.astype(np.uint64))), lambda a: np.full_like(a, -1)
    ),
    "shift_right_logical": _shifted(lambda a, n: signed(unsigned(a) >> n.astype(np.uint64)), np.zeros_like),
    "shift_right_arithmetic": _shifted(lambda a, n: a.astype(np.int64) >> n, lambda a: np.where(a < 0, -1, 0)),
    "minimum_unsigned": lambda a, b: signed(np.minimum(unsigned(a), unsigned(b))),
    "maximum_unsigned": lambda a, b: signed(np.maximum(unsigned(a), unsigned(b))),
    "leading_zeros": _zeros,
    "divide_signed": _quotient,
    "remainder_signed": lambda a, b: _rest(a, b).astype(np.int32),
    "divide_unsigned": lambda a, b: signed(unsigned(a) // np.maximum(unsigned(b), 1)),
    "remainder_unsigned": lambda a, b: signed(unsigned(a) % np.maximum(unsigned(b), 1)),
}
"""By the name in ``ratchet.tpu.scalar``. Divisions by zero are answered with anything."""


def flushed(values: Array) -> Array:
    """float32 with zeros, of the same sign, in the place of denormals."""
    return np.where(np.abs(values) < TINY, np.copysign(np.float32(0), values), values).astype(np.float32)


def _ordered(pick: Callable[[Array, Array], Array], zeros: Callable[[Array, Array], Array]) -> Floats:
    def run(a: Array, b: Array) -> Array:
        equal = zeros(a.view(np.int32), b.view(np.int32)).view(np.float32)
        return np.where(a == b, equal, pick(a, b)).astype(np.float32)

    return run


FLOATS: dict[str, Floats] = {
    "float_add": np.add,
    "float_subtract": np.subtract,
    "float_multiply": np.multiply,
    "float_minimum": _ordered(np.minimum, np.bitwise_or),
    "float_maximum": _ordered(np.maximum, np.bitwise_and),
    "float_floor": np.floor,
    "float_ceil": np.ceil,
}
RELATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """Answers of one operation on many words."""

    words: Array
    """int32, where the answer is known."""
    undefined: Array
    """bool: it has to be undefined."""
    open: Array
    """bool: it may be undefined."""


def integers(name: str, *operands: Array) -> Wanted:
    """Of an operation of ``INTEGERS``."""
    nothing = np.zeros(operands[0].shape, bool)
    undefined = operands[1] == 0 if name.startswith(("divide", "remainder")) else nothing
    with np.errstate(over="ignore"):
        return Wanted(INTEGERS[name](*operands), undefined, nothing)


def floats(name: str, *words: Array) -> Wanted:
    """Of an operation of ``FLOATS``, on the words that hold the floats."""
    values = [word.view(np.float32) for word in words]
    with np.errstate(all="ignore"):
        kept = FLOATS[name](*values)
        other = flushed(FLOATS[name](*map(flushed, values)))
    apart = kept.view(np.int32) != other.view(np.int32)
    # Rounded up to the smallest normal number: whether the unit flushes before it rounds is not known.
    return Wanted(kept.view(np.int32), np.isnan(kept) | apart, np.abs(kept) == TINY)


def relation(name: str, *words: Array) -> Wanted:
    """Of a comparison of floats."""
    values = [word.view(np.float32) for word in words]
    kept, other = RELATIONS[name](*values), RELATIONS[name](*map(flushed, values))
    return Wanted(kept.astype(np.int32), kept != other, np.zeros(kept.shape, bool))


def to_float(words: Array) -> Wanted:
    """An integer's nearest float."""
    nothing = np.zeros(words.shape, bool)
    return Wanted(words.astype(np.float32).view(np.int32), nothing, nothing)


def to_integer(words: Array) -> Wanted:
    """The integer that a float is."""
    with np.errstate(invalid="ignore"):
        values = words.view(np.float32).astype(np.float64)
    whole = (values == np.rint(values)) & (values >= -(2.0**31)) & (values < 2.0**31)
    return Wanted(np.where(whole, values, 0).astype(np.int64).astype(np.int32), ~whole, np.zeros(words.shape, bool))
