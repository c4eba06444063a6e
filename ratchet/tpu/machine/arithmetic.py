"""Scalar arithmetic on words that may be unknown: :mod:`ratchet.tpu.scalar`, lifted. Called by generated code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ratchet.tpu import scalar
from ratchet.tpu.machine.unknown import Unknown


def lifted(function: Callable[..., Any]) -> Any:
    """``function`` where an unknown operand makes the result unknown, and so does an answer that is undefined."""

    def call(*words: Any) -> Any:
        for word in words:
            if isinstance(word, Unknown):
                return word
        answer = function(*words)
        # Nothing may depend on it, so it is not bounded either.
        return Unknown(answer.what, given=True) if isinstance(answer, scalar.Undefined) else answer

    return staticmethod(call)


class Arithmetic:
    """Operations that Python has no expression for."""

    shift_left = lifted(scalar.shift_left)
    shift_left_ones = lifted(scalar.shift_left_ones)
    shift_right_logical = lifted(scalar.shift_right_logical)
    shift_right_arithmetic = lifted(scalar.shift_right_arithmetic)
    minimum = lifted(min)
    maximum = lifted(max)
    minimum_unsigned = lifted(scalar.minimum_unsigned)
    maximum_unsigned = lifted(scalar.maximum_unsigned)
    leading_zeros = lifted(scalar.leading_zeros)
    float_from_integer = lifted(scalar.float_from_integer)
    float_to_integer = lifted(scalar.float_to_integer)
    float_floor = lifted(scalar.float_floor)
    float_ceil = lifted(scalar.float_ceil)
    float_add = lifted(scalar.float_add)
    float_subtract = lifted(scalar.float_subtract)
    float_multiply = lifted(scalar.float_multiply)
    float_minimum = lifted(scalar.float_minimum)
    float_maximum = lifted(scalar.float_maximum)
    float_eq = lifted(partial(scalar.compare_float, "eq"))
    float_ne = lifted(partial(scalar.compare_float, "ne"))
    float_lt = lifted(partial(scalar.compare_float, "lt"))
    float_le = lifted(partial(scalar.compare_float, "le"))
    float_gt = lifted(partial(scalar.compare_float, "gt"))
    float_ge = lifted(partial(scalar.compare_float, "ge"))
    quotient = lifted(scalar.divide_unsigned)
    remainder = lifted(scalar.remainder_unsigned)

    @classmethod
    def divide(cls, a: Any, b: Any) -> list[Any]:
        """Unsigned remainder and quotient, in the order in which a list pops them: the quotient first."""
        return [cls.remainder(a, b), cls.quotient(a, b)]
