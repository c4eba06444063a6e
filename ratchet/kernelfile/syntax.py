"""A kernel file as bytes with its syntax tree: where nodes are, what constants are worth, spans changed. Pure."""

from __future__ import annotations

import ast
import codecs
import io
import itertools
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ratchet.process.concurrency import PARSING
from ratchet.values.status import Refusal, Status

PROBLEM = ("reference_fn", "generate_inputs", "compute_flops")
"""What of a kernel file is frozen. What they need is no constant to tune."""
CLAIMS = "get_tiling_meta"
Number = int | float
Value = int | float | tuple["Value", ...]
Node = ast.expr | ast.stmt | ast.arg
_MOST_BITS = 256
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a / b,
    ast.Mod: lambda a, b: a % b,
}


def tree(source: bytes | str) -> ast.Module:
    """A syntax tree, one at a time. Raises what ``ast.parse`` does."""
    with PARSING:
        return ast.parse(source)


def expression(text: str) -> ast.expr:
    """The syntax tree of an expression. Raises what ``ast.parse`` does."""
    with PARSING:
        return ast.parse(text, mode="eval").body


def parsed(source: bytes, name: str) -> ast.Module:
    """The syntax tree of a file of any encoding.

    Raises:
      Refusal: ``SYNTAX_ERROR``; ``name`` is what the file is called there.
    """
    try:
        return tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refusal(Status.SYNTAX_ERROR, f"{name}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Change:
    """Bytes ``start`` to ``end`` of a file replaced."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, kw_only=True)
class File:
    """A kernel file that is Python, in UTF-8: it can be changed at the places that its tree gives."""

    name: str
    source: bytes
    tree: ast.Module

    @classmethod
    def of(cls, source: bytes, name: str) -> File:
        """Raises:
        Refusal: as ``parsed``; ``USAGE`` for another encoding than UTF-8.
        """
        tree = parsed(source, name)
        try:
            encoding = tokenize.detect_encoding(io.BytesIO(source).readline)[0]
        except SyntaxError:  # bytes of another one, and no word of it: the parser passes over them in a comment
            encoding = "unknown"
        if encoding not in ("utf-8", "utf-8-sig"):
            raise Refusal(Status.USAGE, f"{name} is not in UTF-8, which is needed to change it")
        return cls(name=name, source=source, tree=tree)

    @cached_property
    def _starts(self) -> Sequence[int]:
        starts = list(itertools.accumulate(map(len, self.source.splitlines(keepends=True)), initial=0))
        starts[0] = len(codecs.BOM_UTF8) if self.source.startswith(codecs.BOM_UTF8) else 0
        return starts

    def span(self, node: Node) -> tuple[int, int]:
        """Where a node is, in bytes. A function begins with its first decorator."""
        end = self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        return self._starts[first_line(node) - 1] + node.col_offset, end

    def line_start(self, line: int) -> int:
        """Where a line begins, in bytes; lines count from 1."""
        return self._starts[line - 1]

    def text(self, node: Node, inside: Iterable[Change] = ()) -> str:
        """A node as it is written, with changes inside of it made."""
        start, end = self.span(node)
        moved = [Change(start=one.start - start, end=one.end - start, text=one.text) for one in inside]
        return changed(self.source[start:end], moved).decode()

    def term(self, node: ast.expr) -> str:
        """An expression as it is written, in parentheses where it needs them beside ``+``, ``-`` or before ``//``."""
        product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        plain = product or isinstance(node, ast.Name | ast.Constant | ast.Call)
        return self.text(node) if plain else f"({self.text(node)})"

    def replaced(self, node: Node, text: str) -> Change:
        """The change that puts ``text`` where ``node`` is."""
        start, end = self.span(node)
        return Change(start=start, end=end, text=text)

    def before(self, node: Node, text: str) -> Change:
        """The change that puts ``text`` before ``node``."""
        start = self.span(node)[0]
        return Change(start=start, end=start, text=text)

    def behind(self, node: Node, text: str) -> Change:
        """The change that adds ``text`` to ``node``."""
        end = self.span(node)[1]
        return Change(start=end, end=end, text=text)

    @cached_property
    def functions(self) -> Mapping[str, ast.FunctionDef]:
        """Of the top level."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def assigned(self) -> Mapping[str, ast.expr]:
        """Names that the top level assigns once, and nothing else sets, with what is assigned."""
        return assigned_once(self.tree.body)

    @cached_property
    def frozen(self) -> frozenset[str]:
        """Names of the top level that the problem needs: to change them would change it."""
        return self.needed_by(PROBLEM)

    @cached_property
    def numpy(self) -> str | None:
        """What the file calls ``jax.numpy``."""
        return self._module("jax", "numpy")

    @cached_property
    def pallas(self) -> str | None:
        """What the file calls ``jax.experimental.pallas``."""
        return self._module("jax.experimental", "pallas")

    @cached_property
    def tpu(self) -> str | None:
        """What the file calls ``jax.experimental.pallas.tpu``."""
        return self._module("jax.experimental.pallas", "tpu")

    def _module(self, package: str, name: str) -> str | None:
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                for one in node.names:
                    if one.name == f"{package}.{name}" and one.asname:
                        return one.asname
            if isinstance(node, ast.ImportFrom) and node.module == package:
                for one in node.names:
                    if one.name == name:
                        return one.asname or one.name
        return None

    def needed_by(self, names: Iterable[str]) -> frozenset[str]:
        """Names of the top level that these need, themselves among them."""
        defined: dict[str, list[ast.stmt]] = {}
        for node in self.tree.body:
            for name in _defined(node):
                defined.setdefault(name, []).append(node)
        needed: set[str] = set()
        todo = [name for name in names if name in defined]
        while todo:
            name = todo.pop()
            if name not in needed:
                needed.add(name)
                used = {one for node in defined[name] for one in names_in(_value_of(node, name), ast.Load)}
                todo += [one for one in used if one in defined]
        return frozenset(needed)

    def value(self, node: ast.expr, **given: int) -> Value | None:
        """What an expression of constants of the top level, and of names with numbers ``given`` to them, is worth.

        None where that is not known.
        """
        numbers = {name: ast.Constant(value=number) for name, number in given.items()}
        try:
            return _value(node, {**self.assigned, **numbers}, 0)
        except (ArithmeticError, TypeError, ValueError, LookupError, RecursionError):
            return None

    def number(self, node: ast.expr) -> int | None:
        """The same, of an integer."""
        value = self.value(node)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def changed(source: bytes, changes: Iterable[Change]) -> bytes:
    """The bytes with spans replaced.

    Raises:
      ValueError: two of them overlap.
    """
    end = len(source) + 1
    for one in sorted(changes, key=lambda one: (one.start, one.end), reverse=True):
        if one.end > end:
            raise ValueError("two changes overlap")
        source = source[: one.start] + one.text.encode() + source[one.end :]
        end = one.start
    return source


def first_line(node: Node) -> int:
    """Where it begins, decorators counted."""
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        return node.decorator_list[0].lineno
    return node.lineno


def lines_of(*nodes: ast.expr | ast.stmt) -> tuple[int, ...]:
    """The source lines that nodes are on."""
    return tuple(sorted({line for one in nodes for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}))


def names_in(node: ast.AST, context: type[ast.expr_context] = ast.expr_context) -> set[str]:
    """Names that are in a node; only those that it reads or stores with ``ast.Load`` or ``ast.Store``."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}


def assignments(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """What statements assign at their own level: ``A = 1``, ``A: int = 1``, ``A, (B, C) = 1, (2, 3)``."""
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)


def assigned_once(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """Names that these statements assign once, at their own level, with what is assigned; nothing else sets them."""
    stores = Counter(
        one.id
        for node in body
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    )
    return {name: value for name, value in assignments(body) if stores[name] == 1}


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif (
        isinstance(target, ast.Tuple | ast.List)
        and isinstance(value, ast.Tuple | ast.List)
        and len(target.elts) == len(value.elts)
        and not any(isinstance(one, ast.Starred) for one in (*target.elts, *value.elts))
    ):
        for one, its in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, its)


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from names_in(target)


def _value_of(node: ast.stmt, name: str) -> ast.AST:
    """What a statement gives one of the names that it sets."""
    return dict(assignments([node])).get(name, node) if isinstance(node, ast.Assign) else node


def _value(node: ast.expr, names: Mapping[str, ast.expr], depth: int) -> Value:
    if depth > 40:
        raise ValueError("too deep")
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name():
            return _value(names[node.id], names, depth + 1)
        case ast.Tuple() | ast.List():
            return tuple(_value(one, names, depth + 1) for one in node.elts)
        case ast.UnaryOp(op=ast.USub()):
            return -_number(node.operand, names, depth)
        case ast.Subscript():
            values, at = _value(node.value, names, depth + 1), _number(node.slice, names, depth)
            if isinstance(values, tuple) and isinstance(at, int):
                return values[at]
        case ast.BinOp():
            return _binary(node.op, _number(node.left, names, depth), _number(node.right, names, depth))
        case ast.Call(func=ast.Attribute(attr="cdiv"), args=[left, right], keywords=[]):
            return -(-_number(left, names, depth) // _number(right, names, depth))
    raise TypeError("no constant")


def _number(node: ast.expr, names: Mapping[str, ast.expr], depth: int) -> Number:
    value = _value(node, names, depth + 1)
    if isinstance(value, tuple):
        raise TypeError("a tuple")
    return value


def _binary(op: ast.operator, left: Number, right: Number) -> Number:
    if isinstance(op, ast.LShift) and isinstance(left, int) and isinstance(right, int) and 0 <= right < _MOST_BITS:
        value: Number = left << right
    elif isinstance(op, ast.Pow) and abs(right) * max(1, int(left).bit_length()) < _MOST_BITS:
        value = left**right
    else:
        value = _ARITHMETIC[type(op)](left, right)
    if isinstance(value, complex) or (isinstance(value, int) and value.bit_length() > _MOST_BITS):
        raise ValueError("too large")
    return value
