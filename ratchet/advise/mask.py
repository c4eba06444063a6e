"""Masks by position: skip the blocks that are masked away, and mask only those that the mask divides. Pure.

A mask compares a row's number with a column's, each a scalar plus an iota. Over a block both run between ends that are
known from the scalar and the block's side, so whether the mask is true in the whole block, or false, is one comparison.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ratchet.advise.advice import Edit, Rewrite
from ratchet.kernelfile.blocks import first_line, free_name, indented, movable, runs_when
from ratchet.kernelfile.program import Kernel, is_call, kernels, num_programs, program_id
from ratchet.kernelfile.shapes import Shapes, Unknown, numpy_of, pallas_of
from ratchet.kernelfile.syntax import Change, File, changed


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """Statements of a function that run one after the other, with the loops over strips that they are in."""

    kernel: Kernel
    function: ast.FunctionDef
    body: Sequence[ast.stmt]
    loops: Mapping[str, tuple[str, str]]
    """The first and the last value of each counter, as they would be written."""

    def given(self, name: str) -> ast.expr | None:
        """What a name is given, if that is one thing."""
        values = [
            node.value
            for node in self.body
            if isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name
        ]
        return values[0] if len(values) == 1 else None


@dataclass(frozen=True, kw_only=True)
class Mask:
    """``scores = where(column <= row, scores, -inf)`` in a function of the kernel's."""

    scope: _Scope
    statement: ast.Assign
    whole: str
    """True where the mask is true in all of the block."""
    some: str
    """False where the mask is false in all of the block."""

    @property
    def function(self) -> ast.FunctionDef:
        return self.scope.function


def rewrites(file: File) -> Iterator[Rewrite]:
    """Masks under a guard made only where they matter; functions with a mask and no guard given one."""
    for kernel in kernels(file):
        if not (kernel.alone and kernel.refs):
            continue
        for mask in masks(kernel):
            guard = runs_when(mask.function)
            after = _two_ways(kernel, mask, guard) if guard is not None else _guarded(kernel, mask)
            if after is not None:
                edit = Edit.MASK if guard is not None else Edit.SKIP
                yield Rewrite(edit=edit, after=after, lines=_lines(kernel, mask), subject=_name(mask))


def masks(kernel: Kernel) -> tuple[Mask, ...]:
    """Every mask by position that is a statement of a function by itself."""
    try:
        shapes = Shapes.read(kernel)
    except Unknown:
        return ()
    functions = [node for node in ast.walk(kernel.body) if isinstance(node, ast.FunctionDef)]
    scopes = [scope for function in functions for scope in _scopes(kernel, function)]
    every = [_mask(scope, node, shapes) for scope in scopes for node in scope.body]
    return tuple(one for one in every if one is not None)


def _scopes(kernel: Kernel, function: ast.FunctionDef) -> Iterator[_Scope]:
    """The statements of a function, and those of a loop over strips that is all that it does."""
    yield _Scope(kernel=kernel, function=function, body=function.body, loops={})
    match function.body:
        case [ast.For(target=ast.Name(id=name), iter=ast.Call(args=[first, end, step]) as turns, orelse=[]) as loop]:
            known = is_call(turns, "range") and all(kernel.known(one) for one in (first, end, step))
            if known and _rest(kernel, first, end, step) == 0:
                text = kernel.file.text
                ends = {name: (text(first), f"{text(end)} - {text(step)}")}
                yield _Scope(kernel=kernel, function=function, body=loop.body, loops=ends)


def _rest(kernel: Kernel, first: ast.expr, end: ast.expr, step: ast.expr) -> int | None:
    numbers = [kernel.file.number(one) for one in (first, end, step)]
    start, stop, by = numbers
    return (stop - start) % by if start is not None and stop is not None and by else None


def _mask(scope: _Scope, node: ast.stmt, shapes: Shapes) -> Mask | None:
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(args=[condition, ast.Name(id=kept), fill], keywords=[]) as call,
        ) if is_call(call, "where") and name == kept and is_lowest(fill):
            ends = _compared(scope, condition, shapes)
            if ends is not None:
                return Mask(scope=scope, statement=node, whole=ends[0], some=ends[1])
    return None


def is_lowest(node: ast.expr) -> bool:
    """Minus infinity, or a number that stands for it."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return number >= 1e9
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ast.unparse(operand).endswith(".inf")
    return False


def _compared(scope: _Scope, node: ast.expr, shapes: Shapes) -> tuple[str, str] | None:
    """When a comparison is true all over, and when it is true anywhere."""
    match node:
        case ast.Name(id=name):
            value = scope.given(name)
            return _compared(scope, value, shapes) if value is not None else None
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            if isinstance(op, ast.Gt | ast.GtE):
                left, right, op = right, left, ast.Lt() if isinstance(op, ast.Gt) else ast.LtE()
            small, large = (_ends(scope, one, shapes) for one in (left, right))
            if small is None or large is None or not isinstance(op, ast.Lt | ast.LtE):
                return None
            sign = "<" if isinstance(op, ast.Lt) else "<="
            return f"{small[1]} {sign} {large[0]}", f"{small[0]} {sign} {large[1]}"
    return None


def _ends(scope: _Scope, node: ast.expr, shapes: Shapes) -> tuple[str, str] | None:
    """The least and the largest of ``scalar + iota``, as they would be written."""
    if isinstance(node, ast.Name):
        value = scope.given(node.id)
        return _ends(scope, value, shapes) if value is not None else None
    file, terms = scope.kernel.file, _terms(node)
    iotas = [one for one in terms if isinstance(one, ast.Call) and is_call(one, "broadcasted_iota")]
    counted = [one.id for one in terms if isinstance(one, ast.Name) and one.id in scope.loops]
    rest = [one for one in terms if one not in iotas and not (isinstance(one, ast.Name) and one.id in scope.loops)]
    if len(iotas) != 1 or not all(_is_scalar(scope, one) for one in rest):
        return None
    shape, at = shapes.of(iotas[0]), file.number(iotas[0].args[-1])
    if shape is None or at is None or not 0 <= at < len(shape.sides) or shapes.number(shape.sides[at]) is None:
        return None
    texts = [_term(file, one) for one in rest]
    least = [*texts, *(first for name in counted if (first := scope.loops[name][0]) != "0")]
    most = [*texts, *(scope.loops[name][1] for name in counted), f"{shape.sides[at]} - 1"]
    return " + ".join(least) or "0", " + ".join(most)


def _term(file: File, node: ast.expr) -> str:
    text = file.text(node)
    return text if isinstance(node, ast.Name | ast.Constant | ast.Call) or _is_product(node) else f"({text})"


def _is_product(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _is_scalar(scope: _Scope, node: ast.expr) -> bool:
    """Made of places in the grid, loop counters and constants, none of which the function itself makes."""
    kernel, function = scope.kernel, scope.function
    inside = _stored(function)
    if function is kernel.body:
        asking = [one for one in function.body if isinstance(one, ast.Assign) and _asks(one)]
        inside -= {name for one in asking for name in _stored(one)}
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and program_id(one) is None:
            return False
        if isinstance(one, ast.Name) and (one.id in inside or one.id in kernel.by_name):
            return False
        if isinstance(one, ast.Subscript | ast.Compare | ast.IfExp):
            return False
    return True


def _asks(node: ast.Assign) -> bool:
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    return all(program_id(one) is not None for one in values)


def _two_ways(kernel: Kernel, mask: Mask, guard: ast.expr) -> bytes | None:
    """A guarded function with a parameter: whether it masks."""
    file, function = kernel.file, mask.function
    numpy, pallas = numpy_of(file), pallas_of(file)
    if numpy is None or pallas is None or not movable(file, function) or not movable(file, mask.statement):
        return None
    margin, inner = " " * function.col_offset, " " * mask.statement.col_offset
    flag, whole = free_name(file, "masked"), free_name(file, "unmasked")
    head = file.source[file.line_start(function.lineno) : file.line_start(function.body[0].lineno)].decode()
    if f"def {function.name}():" not in head:
        return None
    end = file.span(function)[1]
    condition = file.text(guard)
    calls = (
        f"\n\n{margin}{whole} = {mask.whole}\n"
        f"{margin}{pallas}.when({numpy}.logical_and({condition}, {whole}))(lambda: {function.name}(False))\n"
        f"{margin}{pallas}.when({numpy}.logical_and({condition}, {numpy}.logical_not({whole})))"
        f"(lambda: {function.name}(True))"
    )
    changes = {
        Change(start=file.line_start(first_line(function)), end=file.line_start(function.lineno), text=""),
        *indented(file, [mask.statement], f"{inner}if {flag}:\n"),
        Change(start=end, end=end, text=calls),
    }
    at = file.line_start(function.lineno) + head.encode().index(b"():") + 1
    return _parsed(file, {*changes, Change(start=at, end=at, text=flag)})


def _guarded(kernel: Kernel, mask: Mask) -> bytes | None:
    """The statements of a function that has no guard, under one: nothing is done where the mask is false all over."""
    file, function, pallas = kernel.file, mask.function, pallas_of(kernel.file)
    statements = _attended(kernel, function)
    if pallas is None or mask.statement not in statements or not all(movable(file, one) for one in statements):
        return None
    rest = [node for node in function.body if node not in statements]
    made = {name for node in statements for name in _stored(node)}
    if made & {one.id for node in rest for one in ast.walk(node) if isinstance(one, ast.Name)}:
        return None
    margin = " " * statements[0].col_offset
    head = f"{margin}@{pallas}.when({mask.some})\n{margin}def {free_name(file, '_attend')}():\n"
    return _parsed(file, indented(file, statements, head))


def _stored(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _attended(kernel: Kernel, function: ast.FunctionDef) -> Sequence[ast.stmt]:
    """The statements of a function between what runs in its first step alone and what runs in its last alone."""
    if function is not kernel.body and not _is_loop(function):
        return []
    if any(isinstance(one, ast.Return) for one in ast.walk(function)):
        return []
    kept = [node for node in function.body if not _is_apart(node)]
    first, last = (function.body.index(kept[at]) for at in (0, -1))
    counts = any(num_programs(one) is not None for node in kept for one in ast.walk(node))
    return kept if last - first + 1 == len(kept) and not counts else []


def _is_apart(node: ast.stmt) -> bool:
    """A guarded statement, one that asks for places in the grid, or a text."""
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or runs_when(node) is not None or (isinstance(node, ast.Assign) and _asks(node))


def _is_loop(function: ast.FunctionDef) -> bool:
    return len(function.decorator_list) == 1 and is_call(function.decorator_list[0], "loop")


def _parsed(file: File, changes: set[Change]) -> bytes | None:
    try:
        after = changed(file.source, changes)
        ast.parse(after)
    except (ValueError, SyntaxError):
        return None
    return after


def _name(mask: Mask) -> str:
    target = mask.statement.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _lines(kernel: Kernel, mask: Mask) -> tuple[int, ...]:
    """Of the mask and of the positions that it compares."""
    names = {one.id for one in ast.walk(mask.statement.value) if isinstance(one, ast.Name)} - {_name(mask)}
    lines = set(range(mask.statement.lineno, (mask.statement.end_lineno or 0) + 1))
    for node in mask.scope.body:
        if (
            isinstance(node, ast.Assign)
            and {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)} & names
        ):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return tuple(sorted(lines))
