"""What one scalar instruction of a TPU computes. The schedule machine and the value executor share this definition.

A word is a signed 32-bit integer. A float32 is the word that holds its bits. Where it cannot be known what the
hardware answers, the answer is :class:`Undefined`: it may be discarded, and nothing may depend on it.

Sources. The hardware is not documented. *Folder*: the compiler's own constant folder must agree with the hardware;
its results were read from listings of libtpu 0.0.42.1 (operands that only the last passes know to be constant).
*Unguarded*: XLA defines the result and emits the bare instruction for operands known only at run time, so that the
instruction itself must give it.

===========================  ==========================================================================================
add, subtract, multiply      wrap modulo 2^32 (folder)
shifts                       the amount is an unsigned word; from 32 on the result is 0, for an arithmetic shift the
                             sign in all bits (folder for 32, 33, 40 and -1; unguarded in XLA's scalar loops)
divide                       unsigned; by zero undefined: MLIR says so, XLA leaves it to the implementation
signed divide, remainder     towards zero, the remainder has the dividend's sign; -2^31 / -1 is -2^31, remainder 0
                             (folder, and the instructions that the compiler emits around the unsigned division)
float add, subtract,         IEEE 754, to nearest, ties to even; overflow gives infinity (folder). The bits of a NaN
multiply, minimum, maximum   that was computed are undefined: listings print ``nan`` without its payload. Minimum and
                             maximum of a NaN are NaN; -0 is less than +0 (folder)
denormals                    the folder flushes operands and results to zero and keeps the sign. Whether the scalar
                             unit does is not known: where flushing changes the result, it is undefined
floor, ceil                  IEEE 754, the sign of zero is kept (folder)
integer to float             to nearest, ties to even (folder)
float to integer             exact for integral values in range. Undefined for others: the folder leaves values out
                             of range and NaN alone, and the compiler rounds before every conversion
comparisons of floats        all false on NaN except *not equal* (folder); -0 equals +0
===========================  ==========================================================================================
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

WIDTH = 32
"""Bits of a word."""

LEAST, MOST = -(2**31), 2**31 - 1
"""The range of a word."""

_MASK = 2**WIDTH - 1
_SMALLEST_NORMAL = 2.0**-126


@dataclass(frozen=True)
class Undefined:
    """An answer of the hardware that cannot be known."""

    what: str
    """The operation, as a noun phrase: ``a division by zero``."""


DIVISION_BY_ZERO = Undefined("a division by zero")
DENORMAL = Undefined("float arithmetic whose result depends on whether denormals are flushed")
NAN_BITS = Undefined("the bits of a NaN")
NOT_AN_INTEGER = Undefined("the conversion of a float that is no int32")

Answer = int | Undefined


def wrap(value: int) -> int:
    """Any integer as a word: its lowest 32 bits, signed."""
    return (value - LEAST & _MASK) + LEAST


def unsigned(word: int) -> int:
    """A word's bits read as an unsigned integer."""
    return word & _MASK


# --- integers ---


def add(a: int, b: int) -> int:
    return wrap(a + b)


def subtract(a: int, b: int) -> int:
    return wrap(a - b)


def multiply(a: int, b: int) -> int:
    return wrap(a * b)


def multiply_high(a: int, b: int) -> int:
    """Upper half of the unsigned product."""
    return wrap(unsigned(a) * unsigned(b) >> WIDTH)


def carry(a: int, b: int) -> bool:
    """Whether the unsigned sum leaves the word."""
    return unsigned(a) + unsigned(b) > _MASK


def shift_left(a: int, amount: int) -> int:
    return wrap(a << amount) if 0 <= amount < WIDTH else 0


def shift_left_ones(a: int, amount: int) -> int:
    """Ones move in from below. The compiler makes the mask of the first rows of a tile of it, from 0 (tpu7x)."""
    return wrap((a + 1 << amount) - 1) if 0 <= amount < WIDTH else -1


def shift_right_logical(a: int, amount: int) -> int:
    return wrap(unsigned(a) >> amount) if 0 <= amount < WIDTH else 0


def shift_right_arithmetic(a: int, amount: int) -> int:
    return a >> (amount if 0 <= amount < WIDTH else WIDTH - 1)


def minimum_unsigned(a: int, b: int) -> int:
    return min(a, b, key=unsigned)


def maximum_unsigned(a: int, b: int) -> int:
    return max(a, b, key=unsigned)


def leading_zeros(a: int) -> int:
    """32 for zero."""
    return WIDTH - unsigned(a).bit_length()


def divide_unsigned(a: int, b: int) -> Answer:
    return wrap(unsigned(a) // unsigned(b)) if b else DIVISION_BY_ZERO


def remainder_unsigned(a: int, b: int) -> Answer:
    return wrap(unsigned(a) % unsigned(b)) if b else DIVISION_BY_ZERO


def divide_signed(a: int, b: int) -> Answer:
    if not b:
        return DIVISION_BY_ZERO
    quotient = abs(a) // abs(b)
    return wrap(quotient if (a < 0) == (b < 0) else -quotient)


def remainder_signed(a: int, b: int) -> Answer:
    if not b:
        return DIVISION_BY_ZERO
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


# --- floats ---


def as_float(word: int) -> float:
    """The float32 that a word holds."""
    return float(struct.unpack("<f", struct.pack("<i", word))[0])


def float_word(value: float) -> int:
    """The word that holds the float32 nearest to ``value``."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:  # larger than any float32
        packed = struct.pack("<f", math.copysign(math.inf, value))
    return int(struct.unpack("<i", packed)[0])


def _flushed(value: float) -> float:
    return math.copysign(0.0, value) if abs(value) < _SMALLEST_NORMAL else value


def _least(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return min(a, b, key=lambda x: (x, math.copysign(1.0, x)))


def _most(a: float, b: float) -> float:
    return -_least(-a, -b)


def _floor(a: float) -> float:
    return math.copysign(float(math.floor(a)), a) if math.isfinite(a) else a


def _ceil(a: float) -> float:
    return math.copysign(float(math.ceil(a)), a) if math.isfinite(a) else a


def _float(operation: Callable[..., float], *words: int) -> Answer:
    """``operation`` on float32 values: exact, or rounded once too precisely to matter, in double precision."""
    operands = [as_float(word) for word in words]
    result = operation(*operands)
    if math.isnan(result):
        return NAN_BITS
    flushed = _flushed(operation(*map(_flushed, operands)))
    word = float_word(result)
    vanishes = as_float(word) == 0.0  # also where denormals are kept: a product may be smaller than all of them
    return word if word == float_word(flushed) and (vanishes or _flushed(result) == result) else DENORMAL


float_add = partial(_float, operator.add)
float_subtract = partial(_float, operator.sub)
float_multiply = partial(_float, operator.mul)
float_minimum = partial(_float, _least)
float_maximum = partial(_float, _most)
float_floor = partial(_float, _floor)
float_ceil = partial(_float, _ceil)


def float_from_integer(a: int) -> int:
    return float_word(float(a))


def float_to_integer(a: int) -> Answer:
    value = as_float(a)
    return int(value) if LEAST <= value <= MOST and value == math.floor(value) else NOT_AN_INTEGER


# --- comparisons ---

RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
"""The relations by which words are compared, as signed integers with no more ado."""


def compare_unsigned(relation: str, a: int, b: int) -> bool:
    return RELATIONS[relation](unsigned(a), unsigned(b))


def compare_float(relation: str, a: int, b: int) -> bool | Undefined:
    holds, x, y = RELATIONS[relation], as_float(a), as_float(b)
    result = holds(x, y)
    return result if result == holds(_flushed(x), _flushed(y)) else DENORMAL
