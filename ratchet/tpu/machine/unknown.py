"""A value that the machine cannot know, because vector code computes it or nobody gave it.

It passes through arithmetic, and makes an error, with its origin, where it would steer control flow.
"""

from __future__ import annotations


class UnknownSteers(Exception):
    """An unknown value reached a place where it decides what the program does."""


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
