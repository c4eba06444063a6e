"""What the patterns share: a file with an edit made, and statements that move as they are written. Pure."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

from ratchet.advise.advice import Edit, Rewrite
from ratchet.kernelfile.program import is_call
from ratchet.kernelfile.syntax import Change, File, changed, first_line
from ratchet.values import Literal

INDENT = "    "


def made(
    file: File,
    edit: Edit,
    changes: Collection[Change],
    *,
    lines: tuple[int, ...] = (),
    subject: str = "",
    point: Mapping[str, Literal] | None = None,
    factor: float = 1.0,
) -> Iterator[Rewrite]:
    """The file with an edit made; nothing where two of its changes overlap, or the result is no Python."""
    try:
        after = changed(file.source, changes)
        ast.parse(after)
    except (ValueError, SyntaxError):
        return
    yield Rewrite(edit=edit, after=after, lines=lines, subject=subject, point=point or {}, factor=factor)


def runs_when(node: ast.AST) -> ast.expr | None:
    """The condition of ``@pl.when(condition)`` over a function without parameters, or of ``pl.when(condition)(f)``."""
    match node:
        case ast.FunctionDef(decorator_list=[ast.Call(args=[condition]) as when]) if is_call(when, "when"):
            return condition if not node.args.args else None
        case ast.Expr(value=ast.Call(func=ast.Call(args=[condition]) as when, args=[_])) if is_call(when, "when"):
            return condition
    return None


def unguarded(file: File, node: ast.stmt) -> set[Change]:
    """What makes a guarded statement run always, where it is."""
    end = file.span(node)[1]
    if isinstance(node, ast.FunctionDef):
        call = f"\n\n{' ' * node.col_offset}{node.name}()"
        decorators = Change(start=file.line_start(first_line(node)), end=file.line_start(node.lineno), text="")
        return {decorators, Change(start=end, end=end, text=call)}
    assert isinstance(node, ast.Expr)
    assert isinstance(node.value, ast.Call)
    return {file.replaced(node.value.func, ""), Change(start=end, end=end, text="()")}


def deleted(file: File, node: ast.stmt) -> Change:
    """A statement gone with its lines."""
    end = file.line_start((node.end_lineno or node.lineno) + 1)
    return Change(start=file.line_start(node.lineno), end=end, text="")


def indented(file: File, statements: Sequence[ast.stmt], head: str) -> set[Change]:
    """Statements that follow each other one margin further in, behind ``head``."""
    start, end = first_line(statements[0]), statements[-1].end_lineno or statements[-1].lineno
    changes = {Change(start=file.line_start(start), end=file.line_start(start), text=head + INDENT)}
    for line in range(start + 1, end + 1):
        at = file.line_start(line)
        if file.source[at : at + 1] not in (b"\n", b"\r", b""):
            changes.add(Change(start=at, end=at, text=INDENT))
    return changes


def movable(file: File, *nodes: ast.stmt) -> bool:
    """Whether lines of statements are their own, and none of them is inside of a text."""
    for node in nodes:
        start = file.line_start(first_line(node))
        texts = (one for one in ast.walk(node) if isinstance(one, ast.Constant | ast.JoinedStr))
        docstring = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
        split = any(one.lineno != one.end_lineno for one in texts if one is not docstring)
        if split or file.source[start : start + node.col_offset].strip():
            return False
    return True


def free_name(file: File, wanted: str) -> str:
    """A name that the file does not use."""
    used: set[str] = set()
    for node in ast.walk(file.tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                used.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                used.add(name)
    name, number = wanted, 2
    while name in used:
        name, number = f"{wanted}_{number}", number + 1
    return name
