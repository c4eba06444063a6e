"""Shapes of what a kernel's function computes, by its syntax tree, as far as they are known. Pure.

Sides are kept as they are written (``BQ``), so that an edit speaks in the file's own constants. A value may be *wide*:
where its last side is 1 it is then LANES equal lanes instead, and where it is joined with more lanes than that, a
change that spreads it is noted.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from ratchet.kernelfile.program import REDUCTIONS, Kernel, has_all_lanes, is_call, is_part, is_whole, keyword, parts
from ratchet.kernelfile.syntax import Change, assignments, expression

LANES = 128
_ELEMENTWISE = (
    "exp", "exp2", "log", "log2", "maximum", "minimum", "where", "abs", "sqrt", "rsqrt", "tanh", "logical_and",
    "logical_or", "logical_not", "square", "sigmoid", "select", "reciprocal",
)  # fmt: skip
_LIKE = ("full_like", "zeros_like", "ones_like")


class Unknown(Exception):
    """A wide value goes where nothing is known about shapes."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sides, as they are written."""

    sides: tuple[str, ...]
    wide: bool = False


@dataclass(kw_only=True)
class Shapes:
    """What is known of the values in one function."""

    kernel: Kernel
    wide: Sequence[str] = ()
    """References whose last side was 1 and is LANES now."""
    names: dict[str, Shape | None] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    @classmethod
    def read(cls, kernel: Kernel, wide: Sequence[str] = ()) -> Shapes:
        """All statements of the kernel's function, in order.

        Raises:
          Unknown: a wide reference is used in a way that is not known.
        """
        shapes = cls(kernel=kernel, wide=wide)
        shapes.statements(kernel.body.body)
        return shapes

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Those of a function and of the functions in it."""
        for node in body:
            match node:
                case ast.FunctionDef():
                    self.statements(node.body)
                case ast.If() | ast.For() | ast.While():
                    self.statements([*node.body, *node.orelse])
                case ast.Assign(targets=[target]):
                    self._assign(target, node.value)
                case ast.AugAssign():
                    self._store(node.target, self._join([node.target, node.value]), node.value)
                case _:
                    self._no_wide(node)

    def of(self, node: ast.expr) -> Shape | None:
        """The shape of an expression; None where it is not known.

        Raises:
          Unknown: as ``read``.
        """
        shape: Shape | None = None
        match node:
            case ast.Constant() | ast.Attribute():
                shape = Shape(sides=())
            case ast.Name(id=name):
                shape = self._name(name)
            case ast.BinOp(op=ast.MatMult()):
                shape = self._product(node.left, node.right, None)
            case ast.BinOp():
                shape = self._join([node.left, node.right])
            case ast.Compare():
                shape = self._join([node.left, *node.comparators])
            case ast.UnaryOp():
                shape = self.of(node.operand)
            case ast.Subscript():
                shape = self._part(node)
            case ast.Call():
                shape = self._call(node)
            case _:
                self._no_wide(node)
        return shape

    def number(self, side: str) -> int | None:
        """A side as an integer."""
        try:
            return self.kernel.file.number(expression(side))
        except SyntaxError:
            return None

    def has_whole_lanes(self, side: str) -> bool:
        """Whether a side is a multiple of LANES, be it a constant or whatever a name is given."""
        given = self._given(side)
        if not given:
            number = self.number(side)
            return number is not None and number % LANES == 0
        statements = [node for node in ast.walk(self.kernel.body) if isinstance(node, ast.stmt)]
        values = [value for name, value in assignments(statements) if name == side]
        return len(values) == given and all(map(self._is_multiple, values))

    def _given(self, name: str) -> int:
        """How often the kernel's function gives a name something, as a parameter of a function in it too."""
        return sum(
            one.arg == name if isinstance(one, ast.arg) else isinstance(one.ctx, ast.Store) and one.id == name
            for one in ast.walk(self.kernel.body)
            if isinstance(one, ast.arg | ast.Name)
        )

    def _is_multiple(self, node: ast.expr) -> bool:
        """Of LANES."""
        number = self.kernel.file.number(node)
        match node:
            case _ if number is not None:
                return number % LANES == 0
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right) | ast.IfExp(body=left, orelse=right):
                return self._is_multiple(left) and self._is_multiple(right)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self._is_multiple(left) or self._is_multiple(right)
            case ast.Call(args=arguments) if is_call(node, "min"):
                return all(map(self._is_multiple, arguments))
            case ast.Name(id=name):
                ranges = [one.iter for one in ast.walk(self.kernel.body) if _counts(one, name)]
                return bool(ranges) and all(map(self._steps_by_lanes, ranges))
        return False

    def _steps_by_lanes(self, node: ast.expr) -> bool:
        ends = [node.args[0], node.args[2]] if is_call(node, "range") and len(node.args) == 3 else []
        return bool(ends) and all(map(self._is_multiple, ends))

    def ref(self, name: str) -> Shape | None:
        """The block of a reference."""
        ref = self.kernel.by_name.get(name)
        if ref is None or ref.block is None:
            return None
        return Shape(sides=tuple(ast.unparse(one) for one in ref.block), wide=name in self.wide)

    def _name(self, name: str) -> Shape | None:
        if name in self.names:
            return self.names[name]
        return self.ref(name) or Shape(sides=())

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._assign(one, its)
            return
        shape = self.of(value)
        if isinstance(target, ast.Name):
            before = self.names.get(target.id, shape)
            if before != shape and any(one is not None and one.wide for one in (before, shape)):
                raise Unknown
            self.names[target.id] = shape if before == shape else None
        else:
            self._store(target, shape, value)

    def _store(self, target: ast.expr, shape: Shape | None, value: ast.expr) -> None:
        """Into a reference: a wide one gets equal lanes, another one a single lane."""
        if is_part(target, self.wide):
            if not has_all_lanes(target, self.wide) or shape is None:
                raise Unknown
            if shape.sides and not shape.wide:
                name = ast.unparse(target.value)
                whole = f"{name}.shape" if is_whole(target, self.wide) else f"({shape.sides[0]}, {LANES})"
                self._wrap(value, f"{self._numpy()}.broadcast_to(", f", {whole})")
        elif shape is not None and shape.wide:
            self._wrap(value, "(", ")[:, :1]")

    def _join(self, nodes: Sequence[ast.expr]) -> Shape | None:
        shapes = [self.of(node) for node in nodes]
        known = [shape for shape in shapes if shape is not None]
        is_wide = any(shape.wide for shape in known)
        sides = self._broadcast([shape.sides for shape in known]) if len(known) == len(nodes) else None
        if is_wide and not sides:
            raise Unknown
        if sides is None:
            return None
        if is_wide and sides[-1] != "1":
            for node, shape in zip(nodes, known, strict=True):
                if shape.wide:
                    self._spread(node, sides[-1])
            is_wide = False
        return Shape(sides=sides, wide=is_wide)

    def _broadcast(self, every: Sequence[tuple[str, ...]]) -> tuple[str, ...] | None:
        sides: list[str] = []
        for at in range(1, max(map(len, every), default=0) + 1):
            here = {one[-at] for one in every if len(one) >= at} - {"1"}
            if len(here) > 1:
                numbers = {self.number(one) for one in here}
                if len(numbers) > 1 or None in numbers:
                    return None
            sides.insert(0, min(here, key=lambda one: (one.isdigit(), one)) if here else "1")
        return tuple(sides)

    def _spread(self, node: ast.expr, side: str) -> None:
        """Let equal lanes be as many as ``side``."""
        number = self.number(side)
        if not self.has_whole_lanes(side) and (number is None or number > LANES):
            raise Unknown
        if number is None or number > LANES:
            factor = side if side.isidentifier() or side.isdigit() else f"({side})"
            self._wrap(node, f"{self._numpy()}.tile(", f", (1, {factor} // {LANES}))")
        elif number < LANES:
            self._wrap(node, "(", f")[:, :{side}]")

    def _wrap(self, node: ast.expr, before: str, after: str) -> None:
        start, end = self.kernel.file.span(node)
        self.changes += [Change(start=start, end=start, text=before), Change(start=end, end=end, text=after)]

    def _numpy(self) -> str:
        if self.kernel.file.numpy is None:
            raise Unknown
        return self.kernel.file.numpy

    def _part(self, node: ast.Subscript) -> Shape | None:
        if isinstance(node.value, ast.Name) and (whole := self._name(node.value.id)) is not None:
            if is_whole(node, (node.value.id,)):
                return whole
            taken = parts(node.slice)
            if len(taken) == len(whole.sides) and (not whole.wide or has_all_lanes(node, (node.value.id,))):
                sides = [_side(part, side) for part, side in zip(taken, whole.sides, strict=True)]
                if None not in sides:
                    return Shape(sides=tuple(map(str, sides)), wide=whole.wide)
        self._no_wide(node)
        return None

    def _call(self, node: ast.Call) -> Shape | None:
        function, arguments = node.func, node.args
        shape: Shape | None = None
        if isinstance(function, ast.Attribute) and function.attr == "astype":
            shape = self.of(function.value)
        elif is_call(node, "program_id", "num_programs"):
            shape = Shape(sides=())
        elif is_call(node, *_ELEMENTWISE):
            shape = self._join(arguments)
        elif is_call(node, *_LIKE) and arguments:
            self._no_wide(*arguments[1:])
            shape = self.of(arguments[0])
        elif is_call(node, "broadcasted_iota") and len(arguments) == 3:
            shape = self._written_shape(arguments[1])
        elif is_call(node, *REDUCTIONS) and arguments:
            shape = self._reduced(node)
        elif is_call(node, "dot", "matmul") and len(arguments) == 2:
            shape = self._product(arguments[0], arguments[1], None)
        elif is_call(node, "dot_general") and len(arguments) >= 3:
            shape = self._product(arguments[0], arguments[1], arguments[2])
        elif is_call(node, "tile") and len(arguments) == 2:
            shape = self._tiled(node)
        else:
            self._no_wide(node)
        return shape

    def _narrow(self, node: ast.expr) -> Shape | None:
        """The shape of what must not be wide here."""
        shape = self.of(node)
        if shape is not None and shape.wide:
            raise Unknown
        return shape

    def _reduced(self, node: ast.Call) -> Shape | None:
        axis, keeps = keyword(node, "axis"), keyword(node, "keepdims")
        shape = self._narrow(node.args[0])
        at = self.kernel.file.number(axis) if axis is not None else None
        kept = isinstance(keeps, ast.Constant) and keeps.value is True
        if shape is None or at is None or not kept or not -len(shape.sides) <= at < len(shape.sides):
            self._no_wide(*node.args)
            return None
        sides = list(shape.sides)
        sides[at] = "1"
        return Shape(sides=tuple(sides))

    def _written_shape(self, node: ast.expr) -> Shape | None:
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            return self._narrow(node.value)
        return Shape(sides=tuple(map(ast.unparse, node.elts))) if isinstance(node, ast.Tuple) else None

    def _product(self, left: ast.expr, right: ast.expr, numbers: ast.expr | None) -> Shape | None:
        one, other = self._narrow(left), self._narrow(right)
        try:
            over = ast.literal_eval(numbers) if numbers is not None else (((1,), (0,)), ((), ()))
            (first, second), batch = over
        except (ValueError, TypeError):
            return None
        if one is None or other is None or any(batch) or not len(one.sides) == len(other.sides) == 2:
            return None
        rests = [
            [side for at, side in enumerate(shape.sides) if at not in tuple(axes)]
            for shape, axes in ((one, first), (other, second))
        ]
        return Shape(sides=(*rests[0], *rests[1]))

    def _tiled(self, node: ast.Call) -> Shape | None:
        """``jnp.tile(x, (1, N // 128))`` of a value with 128 lanes has N."""
        shape = self._narrow(node.args[0])
        match node.args[1]:
            case ast.Tuple(elts=[ast.Constant(value=1), ast.BinOp(left=whole, op=ast.FloorDiv(), right=part)]):
                if shape is not None and self.kernel.file.number(part) == self.number(shape.sides[-1]):
                    return Shape(sides=(*shape.sides[:-1], ast.unparse(whole)))
        return None

    def _no_wide(self, *nodes: ast.AST) -> None:
        """Of what is not known no part may be wide."""
        for node in nodes:
            for one in ast.walk(node):
                if isinstance(one, ast.Name) and (shape := self._name(one.id)) is not None and shape.wide:
                    raise Unknown


def _counts(node: ast.AST, name: str) -> TypeGuard[ast.For | ast.comprehension]:
    """Whether a loop or a comprehension counts by this name."""
    return (
        isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name) and node.target.id == name
    )


def _side(part: ast.expr, side: str) -> str | None:
    match part:
        case ast.Slice(lower=None, upper=None, step=None):
            return side
        case ast.Call(args=[_, length]) if is_call(part, "ds"):
            return ast.unparse(length)
        case ast.Slice(lower=ast.Name(id=name), upper=ast.BinOp(left=ast.Name(id=again), op=ast.Add(), right=length)):
            return ast.unparse(length) if name == again and part.step is None else None
    return None
