"""Conditions on knobs: Python expressions, checked node by node and evaluated here, never by Python. Pure."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.values import Literal
from ratchet.values.status import Refusal, Status

_MOST_CHARACTERS = 1000
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
        if len(text) > _MOST_CHARACTERS:
            raise _refused(text, f"has {len(text)} characters, at most {_MOST_CHARACTERS} are read")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
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
