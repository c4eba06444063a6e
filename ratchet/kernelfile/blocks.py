"""Statements that move as they are written: guards, margins, names that are free. Pure."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ratchet.kernelfile.program import is_call
from ratchet.kernelfile.syntax import Change, File

INDENT = "    "


def runs_when(node: ast.stmt) -> ast.expr | None:
    """The condition of ``@pl.when(condition)`` over a function without parameters, or of ``pl.when(condition)(f)``."""
    match node:
        case ast.FunctionDef(decorator_list=[ast.Call(args=[condition]) as when]) if is_call(when, "when"):
            return condition if not node.args.args else None
        case ast.Expr(value=ast.Call(func=ast.Call(args=[condition]) as when, args=[_])) if is_call(when, "when"):
            return condition
    return None


def is_guard(file: File, node: ast.stmt) -> set[Change]:
    """What makes a guarded statement run always, where it is."""
    if isinstance(node, ast.FunctionDef):
        start = file.line_start(node.decorator_list[0].lineno)
        end = file.span(node)[1]
        call = f"\n\n{' ' * node.col_offset}{node.name}()"
        return {Change(start=start, end=file.line_start(node.lineno), text=""), Change(start=end, end=end, text=call)}
    assert isinstance(node, ast.Expr)
    assert isinstance(node.value, ast.Call)
    return {file.replaced(node.value.func, ""), Change(start=file.span(node)[1], end=file.span(node)[1], text="()")}


def deleted(file: File, node: ast.stmt) -> Change:
    """A statement gone with its lines."""
    return Change(
        start=file.line_start(node.lineno), end=file.line_start((node.end_lineno or node.lineno) + 1), text=""
    )


def indented(file: File, statements: Sequence[ast.stmt], head: str) -> set[Change]:
    """Statements that follow each other one margin further in, behind ``head``."""
    start, end = first_line(statements[0]), statements[-1].end_lineno or statements[-1].lineno
    changes = {Change(start=file.line_start(start), end=file.line_start(start), text=head + INDENT)}
    for line in range(start + 1, end + 1):
        at = file.line_start(line)
        if file.source[at : at + 1] not in (b"\n", b"\r", b""):
            changes.add(Change(start=at, end=at, text=INDENT))
    return changes


def first_line(node: ast.stmt) -> int:
    """Where it begins, decorators counted."""
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        return node.decorator_list[0].lineno
    return node.lineno


def movable(file: File, node: ast.stmt) -> bool:
    """Whether lines of a statement are its own, and none of them is inside of a text."""
    start = file.line_start(first_line(node))
    alone = not file.source[start : start + node.col_offset].strip()
    texts = (one for one in ast.walk(node) if isinstance(one, ast.Constant | ast.JoinedStr))
    docstring = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
    return alone and all(one.lineno == one.end_lineno for one in texts if one is not docstring)


def free_name(file: File, wanted: str) -> str:
    """A name that the file does not use."""
    used = {one.id for one in ast.walk(file.tree) if isinstance(one, ast.Name)}
    used |= {one.name for one in ast.walk(file.tree) if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    used |= {one.arg for one in ast.walk(file.tree) if isinstance(one, ast.arg)}
    used |= {one.attr for one in ast.walk(file.tree) if isinstance(one, ast.Attribute)}
    name, number = wanted, 2
    while name in used:
        name, number = f"{wanted}_{number}", number + 1
    return name
