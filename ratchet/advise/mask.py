"""Masks by position: skip the blocks that are masked away, and mask only those that the mask divides. Pure.

A mask compares a row's number with a column's, each a scalar plus an iota. Over a block both run between ends that are
known from the scalar and the block's side, so whether the mask is true in the whole block, or false, is one comparison.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import free_name, indented, made, movable, runs_when
from ratchet.advise.stages import tiles_of
from ratchet.kernelfile.program import Kernel, calls, is_call, num_programs, parts, program_id
from ratchet.kernelfile.shapes import Shapes
from ratchet.kernelfile.syntax import Change, first_line, lines_of, names_in


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """Statements of a function that run one after the other, with the loops over strips that they are in."""

    kernel: Kernel
    shapes: Shapes
    function: ast.FunctionDef
    body: Sequence[ast.stmt]
    loops: Mapping[str, tuple[str, str]]
    """The first and the last value of each counter, as they would be written."""

    def given(self, name: str) -> ast.expr | None:
        """What a name is given, if that is one thing."""
        values = [
            node.value for node in self.body
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]
        ]  # fmt: skip
        return values[0] if len(values) == 1 else None


@dataclass(frozen=True, kw_only=True)
class _Mask:
    """``scores = where(column <= row, scores, -inf)`` in a function of the kernel's."""

    scope: _Scope
    name: str
    """``scores``."""
    statement: ast.Assign
    whole: str
    """True where the mask is true in all of the block."""
    some: str
    """False where the mask is false in all of the block."""


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """Masks under a guard made only where they matter; functions with a mask and no guard given one."""
    for mask in _masks(kernel):
        guard = runs_when(mask.scope.function)
        changes = _two_ways(mask, guard) if guard is not None else _guarded(mask)
        if changes:
            edit = Edit.MASK if guard is not None else Edit.SKIP
            yield from made(kernel.file, edit, changes, lines=_lines(mask), subject=mask.name)


def _masks(kernel: Kernel) -> Iterator[_Mask]:
    """Every mask by position that is a statement of a function by itself."""
    shapes = Shapes.read(kernel)
    functions = [node for node in ast.walk(kernel.body) if isinstance(node, ast.FunctionDef)]
    for scope in [scope for function in functions for scope in _scopes(kernel, shapes, function)]:
        for node in scope.body:
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(args=[condition, ast.Name(id=kept), fill], keywords=[]) as call,
                ) if is_call(call, "where") and name == kept and is_lowest(fill):
                    ends = _compared(scope, condition)
                    if ends is not None:
                        yield _Mask(scope=scope, name=name, statement=node, whole=ends[0], some=ends[1])


def _scopes(kernel: Kernel, shapes: Shapes, function: ast.FunctionDef) -> Iterator[_Scope]:
    """The statements of a function, and those of a loop over strips that is all that it does."""
    yield _Scope(kernel=kernel, shapes=shapes, function=function, body=function.body, loops={})
    tiles = tiles_of(function)
    if tiles is not None and len(tiles.counted.args) == 3:
        first, end, step = tiles.counted.args
        start, stop, by = (kernel.file.number(one) for one in (first, end, step))
        known = all(kernel.known(one) for one in (first, end, step))
        if known and start is not None and stop is not None and by and (stop - start) % by == 0:
            text = kernel.file.text
            ends = {tiles.row: (text(first), f"{text(end)} - {text(step)}")}
            yield _Scope(kernel=kernel, shapes=shapes, function=function, body=tiles.body, loops=ends)


def is_lowest(node: ast.expr) -> bool:
    """Minus infinity, or a number that stands for it."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return number >= 1e9
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ast.unparse(operand).endswith(".inf")
    return False


def _compared(scope: _Scope, node: ast.expr) -> tuple[str, str] | None:
    """When a comparison is true all over, and when it is true anywhere."""
    match node:
        case ast.Name(id=name):
            value = scope.given(name)
            return _compared(scope, value) if value is not None else None
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() as op], comparators=[right]):
            if isinstance(op, ast.Gt | ast.GtE):
                left, right = right, left
            small, large = _ends(scope, left), _ends(scope, right)
            if small is not None and large is not None:
                sign = "<" if isinstance(op, ast.Lt | ast.Gt) else "<="
                return f"{small[1]} {sign} {large[0]}", f"{small[0]} {sign} {large[1]}"
    return None


def _ends(scope: _Scope, node: ast.expr) -> tuple[str, str] | None:
    """The least and the largest of ``scalar + iota``, as they would be written."""
    if isinstance(node, ast.Name):
        value = scope.given(node.id)
        return _ends(scope, value) if value is not None else None
    file, terms = scope.kernel.file, _terms(node)
    iotas = [one for one in terms if is_call(one, "broadcasted_iota") and len(one.args) == 3]
    counted = [one.id for one in terms if isinstance(one, ast.Name) and one.id in scope.loops]
    rest = [one for one in terms if one not in iotas and not (isinstance(one, ast.Name) and one.id in scope.loops)]
    if len(iotas) != 1 or not all(_is_scalar(scope, one) for one in rest):
        return None
    shape, at = scope.shapes.of(iotas[0]), file.number(iotas[0].args[-1])
    if shape is None or at is None or not 0 <= at < len(shape.sides) or scope.shapes.number(shape.sides[at]) is None:
        return None
    texts = [file.term(one) for one in rest]
    least = [*texts, *(first for name in counted if (first := scope.loops[name][0]) != "0")]
    most = [*texts, *(scope.loops[name][1] for name in counted), f"{shape.sides[at]} - 1"]
    return " + ".join(least) or "0", " + ".join(most)


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _is_scalar(scope: _Scope, node: ast.expr) -> bool:
    """Made of places in the grid, loop counters and constants, none of which the function itself makes."""
    kernel, function = scope.kernel, scope.function
    inside = names_in(function, ast.Store)
    if function is kernel.body:
        inside -= {name for one in function.body if _asks(one) for name in names_in(one, ast.Store)}
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and program_id(one) is None:
            return False
        if isinstance(one, ast.Name) and (one.id in inside or one.id in kernel.by_name):
            return False
        if isinstance(one, ast.Subscript | ast.Compare | ast.IfExp):
            return False
    return True


def _asks(node: ast.stmt) -> bool:
    """Whether a statement gives names to places in the grid and does nothing else."""
    return isinstance(node, ast.Assign) and all(program_id(one) is not None for one in parts(node.value))


def _two_ways(mask: _Mask, guard: ast.expr) -> set[Change]:
    """A guarded function with a parameter: whether it masks."""
    file, function = mask.scope.kernel.file, mask.scope.function
    head = file.source[file.line_start(function.lineno) : file.line_start(function.body[0].lineno)].decode()
    known = file.numpy is not None and file.pallas is not None and f"def {function.name}():" in head
    if not known or not movable(file, function, mask.statement):
        return set()
    margin, inner = " " * function.col_offset, " " * mask.statement.col_offset
    flag, whole = free_name(file, "masked"), free_name(file, "unmasked")
    end, both = file.span(function)[1], f"{file.pallas}.when({file.numpy}.logical_and({file.text(guard)}, "
    twice = (
        f"\n\n{margin}{whole} = {mask.whole}\n{margin}{both}{whole}))(lambda: {function.name}(False))\n"
        f"{margin}{both}{file.numpy}.logical_not({whole})))(lambda: {function.name}(True))"
    )
    at = file.line_start(function.lineno) + head.encode().index(b"():") + 1
    return {
        Change(start=file.line_start(first_line(function)), end=file.line_start(function.lineno), text=""),
        *indented(file, [mask.statement], f"{inner}if {flag}:\n"),
        Change(start=end, end=end, text=twice),
        Change(start=at, end=at, text=flag),
    }


def _guarded(mask: _Mask) -> set[Change]:
    """The statements of a function that has no guard, under one: nothing is done where the mask is false all over."""
    file, function = mask.scope.kernel.file, mask.scope.function
    statements = _attended(mask.scope)
    if file.pallas is None or mask.statement not in statements or not movable(file, *statements):
        return set()
    rest = {name for node in function.body if node not in statements for name in names_in(node)}
    if rest & {name for node in statements for name in names_in(node, ast.Store)}:
        return set()
    margin = " " * statements[0].col_offset
    head = f"{margin}@{file.pallas}.when({mask.some})\n{margin}def {free_name(file, '_attend')}():\n"
    return indented(file, statements, head)


def _attended(scope: _Scope) -> Sequence[ast.stmt]:
    """The statements of a function between what runs in its first step alone and what runs in its last alone."""
    function = scope.function
    is_loop = len(function.decorator_list) == 1 and is_call(function.decorator_list[0], "loop")
    if not (function is scope.kernel.body or is_loop) or any(isinstance(one, ast.Return) for one in ast.walk(function)):
        return []
    kept = [node for node in function.body if not _is_apart(node)]
    first, last = (function.body.index(kept[at]) for at in (0, -1))
    counts = any(num_programs(one) is not None for node in kept for one in calls(node, "num_programs"))
    return kept if last - first + 1 == len(kept) and not counts else []


def _is_apart(node: ast.stmt) -> bool:
    """A guarded statement, one that asks for places in the grid, or a text."""
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or runs_when(node) is not None or _asks(node)


def _lines(mask: _Mask) -> tuple[int, ...]:
    """Of the mask and of the positions that it compares."""
    names = names_in(mask.statement.value) - {mask.name}
    given = [
        node for node in mask.scope.body
        if isinstance(node, ast.Assign) and any(names_in(target) & names for target in node.targets)
    ]  # fmt: skip
    return lines_of(mask.statement, *given)
