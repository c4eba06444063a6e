"""Arithmetic of the scalar unit on 32-bit words, any of which may be unknown.

Words are signed integers; a float32 is the word that holds its bits. Called by generated code.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from ratchet.machine.unknown import Unknown

Word = int | Unknown

_FLOAT_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else min(a, b),
    "max": lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else max(a, b),
}


class Words:
    """Operations that Python has no expression for."""

    @staticmethod
    def least(a: Word, b: Word) -> Word:
        return a if isinstance(a, Unknown) else b if isinstance(b, Unknown) else min(a, b)

    @staticmethod
    def most(a: Word, b: Word) -> Word:
        return a if isinstance(a, Unknown) else b if isinstance(b, Unknown) else max(a, b)

    @staticmethod
    def leading_zeros(a: Word) -> Word:
        return 32 - (a & 0xFFFFFFFF).bit_length() if isinstance(a, int) else a

    @staticmethod
    def divide(a: Word, b: Word) -> list[Word]:
        """Unsigned quotient and remainder, in the order in which a list pops them."""
        if isinstance(a, int) and isinstance(b, int):
            quotient, remainder = divmod(a & 0xFFFFFFFF, b & 0xFFFFFFFF)
            return [_signed(remainder), _signed(quotient)]
        unknown = a if isinstance(a, Unknown) else b
        return [unknown, unknown]

    @staticmethod
    def float_bits(a: Word) -> Word:
        """The float32 nearest to an integer."""
        return _bits(float(a)) if isinstance(a, int) else a

    @staticmethod
    def as_float(bits: Word) -> float | Unknown:
        return _float(bits) if isinstance(bits, int) else bits

    @staticmethod
    def float_operation(name: str, a: Word, b: Word) -> Word:
        """One of add, sub, mul, min, max in float32: exact in double precision, then rounded once."""
        if isinstance(a, int) and isinstance(b, int):
            return _bits(_FLOAT_OPERATIONS[name](_float(a), _float(b)))
        return a if isinstance(a, Unknown) else b

    @staticmethod
    def rounded(name: str, bits: Word) -> Word:
        """floor or ceil in float32."""
        if not isinstance(bits, int):
            return bits
        value = _float(bits)
        return _bits(float(getattr(math, name)(value))) if math.isfinite(value) else bits

    @staticmethod
    def to_integer(bits: Word) -> Word:
        """Towards zero; what an int32 cannot hold becomes its nearest end, NaN zero."""
        if not isinstance(bits, int):
            return bits
        value = _float(bits)
        if math.isnan(value):
            return 0
        return int(max(-(2.0**31), min(2.0**31 - 1, value)))


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<i", bits))[0])


def _bits(value: float) -> int:
    try:
        packed = struct.pack("<f", value)
    except OverflowError:  # larger than any float32
        packed = struct.pack("<f", math.copysign(math.inf, value))
    return int(struct.unpack("<i", packed)[0])


def _signed(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31
