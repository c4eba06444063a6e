"""The space of a search: knobs, their values, and which combinations are wanted. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ratchet.kernelfile.knobs import asked, choices, knobs, values
from ratchet.search.constraint import Constraint
from ratchet.values import Literal, Point
from ratchet.values.status import Refusal, Status

Key = tuple[tuple[type, Literal], ...]
MOST_POINTS = 1_000_000
"""Combinations, before conditions: what a list of all of them may hold."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One knob. Numbers are in order; a step is from one value to the next."""

    name: str
    values: tuple[Literal, ...]

    @classmethod
    def of(cls, name: str, values: Sequence[Literal]) -> Axis:
        ordered = all(map(_is_number, values))
        return cls(name=name, values=tuple(sorted(values)) if ordered else tuple(values))  # type: ignore[type-var]

    @property
    def ordered(self) -> bool:
        """Whether its values are numbers, and not names, switches or None."""
        return all(map(_is_number, self.values))

    def index(self, value: Literal) -> int:
        """Where a value is among its own: ``1`` and ``True`` are two."""
        return next(i for i, one in enumerate(self.values) if (type(one), one) == (type(value), value))

    def near(self, value: Literal) -> tuple[Literal, ...]:
        """The values one step away: the next smaller and larger number, or all other values."""
        at = self.index(value)
        if not self.ordered:
            return tuple(one for i, one in enumerate(self.values) if i != at)
        return tuple(self.values[i] for i in (at + 1, at - 1) if 0 <= i < len(self.values))


@dataclass(frozen=True, kw_only=True)
class Space:
    """All that a search may try."""

    axes: tuple[Axis, ...]
    where: tuple[Constraint, ...] = ()
    constants: Mapping[str, Literal]
    """Of the file: conditions may name those that are no knobs, too."""

    def allows(self, point: Point) -> bool:
        """Whether every condition holds there.

        Raises:
          Refusal: as ``Constraint.holds``.
        """
        known = {**self.constants, **point}
        return all(one.holds(known) for one in self.where)

    def points(self) -> Iterator[dict[str, Literal]]:
        """Every point that is wanted, the last knob turning fastest."""
        names = [axis.name for axis in self.axes]
        for combination in itertools.product(*(axis.values for axis in self.axes)):
            point = dict(zip(names, combination, strict=True))
            if self.allows(point):
                yield point

    def key(self, point: Point) -> Key:
        """What two points differ in: the type and the value of each knob, so that ``1`` is not ``1.0``."""
        return tuple((type(point[axis.name]), point[axis.name]) for axis in self.axes)

    def nearest(self, point: Point) -> dict[str, Literal]:
        """The point of the space that is nearest to another, each knob by itself; conditions are not asked."""
        return {axis.name: _nearest(axis, point.get(axis.name)) for axis in self.axes}


def space_of(source: bytes, name: str, given: Sequence[str], where: Sequence[str]) -> Space:
    """The space of a kernel file: its own comments, and what the command line says instead or besides.

    Args:
      source: the kernel file.
      name: what it is called.
      given: ``BQ=128,256``; a knob that is named here has these values and not those of its comment.
      where: further conditions.

    Raises:
      Refusal: ``USAGE`` for no knob at all, a name that is no knob, or a condition that cannot be evaluated.
    """
    said, own = asked(source, name), dict(map(choices, given))
    if len(own) < len(given):
        raise Refusal(Status.USAGE, "a knob is named twice: give all its values at once")
    known = knobs(source, name)
    axes = {**dict(said.axes), **own}
    if not axes:
        raise Refusal(
            Status.USAGE, f"{name} names no values to try: write `BQ = 256  # tune: 128, 256, 512`, or --knob"
        )
    if missing := [one for one in axes if one not in known]:
        there = ", ".join(known) or "none"
        raise Refusal(
            Status.USAGE, f"{name} sets no constant {missing[0]!r:.60} once at its top level; it has: {there:.600}"
        )
    constants = values(source, name)
    conditions = tuple(map(Constraint.of, (*said.where, *where)))
    for condition in conditions:
        if unknown := sorted(condition.names - {*axes, *constants}):
            raise Refusal(
                Status.USAGE, f"the condition {condition.text!r:.80} names {unknown[0]}, no constant of {name}"
            )
    space = Space(axes=tuple(Axis.of(*one) for one in axes.items()), where=conditions, constants=constants)
    count = 1
    for axis in space.axes:
        count *= len(axis.values)
    if count > MOST_POINTS:
        raise Refusal(Status.USAGE, f"the knobs have {count} combinations, at most {MOST_POINTS}: give fewer values")
    if next(space.points(), None) is None:
        raise Refusal(Status.USAGE, "no combination of the knobs satisfies every condition")
    return space


def _nearest(axis: Axis, value: Literal) -> Literal:
    if axis.ordered and _is_number(value):
        return min(axis.values, key=lambda one: abs(one - value))  # type: ignore[operator]
    return value if (type(value), value) in [(type(one), one) for one in axis.values] else axis.values[0]


def _is_number(value: Literal) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
