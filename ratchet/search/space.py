"""The space of a search: knobs, their values, which combinations are wanted, and which points were tried. Pure.

Conditions on knobs are Python expressions, checked node by node and evaluated here, never by Python.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.kernelfile.knobs import choices, knobs, tuning, values
from ratchet.kernelfile.syntax import File, expression
from ratchet.search import blocks
from ratchet.values import Literal, Point
from ratchet.values.status import Refusal, Status

_MOST_BITS = 4096
"""Integers do not get longer on the way."""
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.Not: operator.not_, ast.USub: operator.neg}
WANTED = "wanted constants, names, + - * / // % **, comparisons, and, or, not, if-else"


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """One condition, known to hold nothing but what is evaluated here."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Constraint:
        """Raises:
        Refusal: ``USAGE`` for what is no such expression.
        """
        if len(text) > blocks.MOST_CHARACTERS:
            raise _refused(text, f"has {len(text)} characters, at most {blocks.MOST_CHARACTERS} are read")
        try:
            tree = expression(text.strip())
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise _refused(text, f"is no Python expression ({type(error).__name__})") from None
        for node in ast.walk(tree):
            if not isinstance(node, _KNOWN):
                raise _refused(text, f"holds {type(node).__name__}")
            if isinstance(node, ast.Constant) and not isinstance(node.value, int | float | str | None):
                raise _refused(text, f"holds {node.value!r:.40}")
        names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        return cls(text=text.strip(), tree=tree, names=names)

    def holds(self, values: Mapping[str, Literal]) -> bool:
        """Whether it is true, for the values of all its names.

        Raises:
          Refusal: ``USAGE`` where it has no value there, such as a division by zero.
        """
        try:
            return bool(_value(self.tree, values))
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            where = ", ".join(f"{name}={values[name]!r:.40}" for name in sorted(self.names))
            raise _refused(self.text, f"has no value{f' where {where}' if where else ''}: {error}") from None


_KNOWN = (
    ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.Tuple,
    ast.List, ast.IfExp, *_BINARY, *_COMPARE, *_UNARY,
)  # fmt: skip


def _value(node: ast.expr, values: Mapping[str, Literal]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return values[node.id]
        case ast.Tuple() | ast.List():
            return tuple(_value(one, values) for one in node.elts)
        case ast.IfExp():
            return _value(node.body if _value(node.test, values) else node.orelse, values)
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_value(node.operand, values))
        case ast.BinOp():
            return _binary(type(node.op), _value(node.left, values), _value(node.right, values))
        case ast.BoolOp():
            return _bool(node, values)
        case ast.Compare():
            return _compare(node, values)
    raise TypeError(f"{type(node).__name__} is not evaluated")


def _binary(kind: type[ast.operator], left: Any, right: Any) -> Any:
    """Of numbers alone: a text times a number may be of any length."""
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise TypeError(f"{left!r:.40} and {right!r:.40} are not both numbers")
    if kind is ast.Pow and isinstance(left, int) and abs(right) * max(1, left.bit_length()) > _MOST_BITS:
        raise ValueError(f"{left!r:.40} ** {right!r:.40} is too large")
    value = _BINARY[kind](left, right)
    if isinstance(value, complex) or (isinstance(value, int) and value.bit_length() > _MOST_BITS):
        raise ValueError("the result is too large, or no real number")
    return value


def _bool(node: ast.BoolOp, values: Mapping[str, Literal]) -> Any:
    value: Any = None
    for one in node.values:
        value = _value(one, values)
        if bool(value) is isinstance(node.op, ast.Or):
            break
    return value


def _compare(node: ast.Compare, values: Mapping[str, Literal]) -> bool:
    left = _value(node.left, values)
    for kind, right in zip(node.ops, node.comparators, strict=True):
        other = _value(right, values)
        if not _COMPARE[type(kind)](left, other):
            return False
        left = other
    return True


def _refused(text: str, why: str) -> Refusal:
    return Refusal(Status.USAGE, f"the condition {text.strip()!r:.80} {why}; {WANTED}")


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
    said, own = tuning(source, name), dict(map(choices, given))
    if len(own) < len(given):
        raise Refusal(Status.USAGE, "a knob is named twice: give all its values at once")
    known = knobs(source, name)
    axes = {**dict(said.axes), **own}
    divided: tuple[str, ...] = ()
    if not axes:
        file = File.of(source, name)
        axes = blocks.axes(file)
        divided = blocks.conditions(file, frozenset(axes))
    if not axes:
        raise Refusal(
            Status.USAGE,
            f"{name} names no values to try and has no block: write `BQ = 256  # tune: 128, 256, 512`, or --knob",
        )
    if missing := [one for one in axes if one not in known]:
        there = ", ".join(known) or "none"
        raise Refusal(
            Status.USAGE, f"{name} sets no constant {missing[0]!r:.60} once at its top level; it has: {there:.600}"
        )
    constants = values(source, name)
    conditions = tuple(map(Constraint.of, (*said.where, *where, *divided)))
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
        raise Refusal(
            Status.USAGE, f"the knobs have {count} combinations, at most {MOST_POINTS}: name fewer values, with --knob"
        )
    if next(space.points(), None) is None:
        raise Refusal(Status.USAGE, "no combination of the knobs satisfies every condition")
    return space


def _nearest(axis: Axis, value: Literal) -> Literal:
    if axis.ordered and _is_number(value):
        return min(axis.values, key=lambda one: abs(one - value))  # type: ignore[operator]
    return value if (type(value), value) in [(type(one), one) for one in axis.values] else axis.values[0]


def _is_number(value: Literal) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One point that has a row in the ledger."""

    point: Point
    status: Status
    """Of the row: ``UNCHECKED`` and ``NOT_BETTER`` have a latency, too."""
    latency_ms: float | None
    """None where the kernel was refused."""
    vmem_bytes: int | None = None
    """None where that is not known."""
    id: str = ""
    """The row's id."""
    kept: bool = False
    reason: str = ""
    """The row's, in words."""

    @property
    def passed(self) -> bool:
        """Whether it has a latency at all."""
        return self.latency_ms is not None


def best(observations: Sequence[Observation]) -> Observation | None:
    """The fastest; of equal ones the one tried first."""
    timed = [one for one in observations if one.latency_ms is not None]
    return min(timed, key=lambda one: one.latency_ms or 0.0, default=None)


def since_best(observations: Sequence[Observation]) -> int:
    """How many were tried after the fastest."""
    top = best(observations)
    return len(observations) - 1 - observations.index(top) if top else len(observations)
