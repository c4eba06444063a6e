"""The words that generated code computes with: integers, truth values, and those that the machine cannot know.

A word is unknown because vector code computes it or nobody gave it. It passes through arithmetic, and makes an error,
with its origin, where it would steer control flow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ratchet.tpu import scalar


class NotExecutable(Exception):
    """The program does what the machine cannot follow; the text says what."""


class UnknownSteers(NotExecutable):
    """An unknown value reached a place where it decides what the program does."""

    def __init__(self, origin: str) -> None:
        super().__init__(f"control flow or an address depends on {origin}, which the machine does not know")


class UndecidedBranch(Exception):
    """A branch depends on an unknown value, and nobody said which way to go."""


class Unknown:
    """Arithmetic on it is unknown; asking for its truth or its integer raises :class:`UnknownSteers`."""

    __slots__ = ("given", "origin")

    def __init__(self, origin: str, *, given: bool = False) -> None:
        self.origin = origin
        self.given = given
        """True for contents of an input: whoever runs the machine can give them, so nothing is bounded."""

    def _same(self, *_: object) -> Unknown:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _same
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __neg__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = _same
    __eq__ = __ne__ = _same  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise UnknownSteers(self.origin)

    def __int__(self) -> int:
        raise UnknownSteers(self.origin)

    __index__ = __int__

    def __hash__(self) -> int:
        # Asked for where it is an address in scalar memory.
        raise UnknownSteers(self.origin)


class Division(Unknown):
    """The results of a division in their queue, which are no word until they are popped."""

    __slots__ = ("_results",)

    def __init__(self, *results: Any) -> None:
        """``results`` in the order in which they are popped."""
        super().__init__("the results of a division")
        self._results = list(results)

    def pop(self) -> Any:
        """The next result. Raises NotExecutable where there is none."""
        if not self._results:
            raise NotExecutable("a result of a division is popped twice")
        return self._results.pop(0)


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
    """Operations that Python has no expression for: :mod:`ratchet.tpu.scalar`, lifted. Called by generated code."""

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
    def divide(cls, a: Any, b: Any, results: str = "both") -> Division:
        """The unsigned ``quotient``, the ``remainder``, or both in this order."""
        answers = {"quotient": cls.quotient(a, b), "remainder": cls.remainder(a, b)}
        return Division(*(answer for name, answer in answers.items() if results in ("both", name)))

    @staticmethod
    def popped(queued: object) -> Any:
        """The next result of a division. Raises NotExecutable where there is none."""
        if isinstance(queued, Division):
            return queued.pop()
        raise NotExecutable("what is popped is no result of a division")
